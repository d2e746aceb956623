#include "executor/autograd/function_node.h"

#include "engine/base/check.h"

namespace mx::detail {

void FunctionNode::back(const Step& step) {
  Back back;
  {
    const FlagLock lock(saved_locked_);
    if (step.keep) {
      back = back_;
    } else {
      back.swap(back_);
    }
  }
  if (!back) throw_released(name_);
  try {
    back(step);
  } catch (...) {
    if (!step.keep) {
      const FlagLock lock(saved_locked_);
      back_.swap(back);
    }
    throw;
  }
}

void record_function(const char* name, const NDArray& input, const NDArray& output,
                     std::function<NDArray(const NDArray& head)> back) {
  set_edge(output.impl(),
           make_node<FunctionNode>(name, std::vector<Edge>{edge_of(input.impl())}, 1,
                                   [back = std::move(back)](const Step& step) {
                                     if (step.wanted[0] != 0) step.results[0] = back(step.heads[0]);
                                   }),
           0);
}

void throw_released(const char* name) {
  throw InvalidState(concat(
      "[backward] expected a graph that still has its saved values, got one whose saved values of [", name,
      "] another backward() or grad() has released, before this one or at the same time; pass "
      "retain_graph to that call"));
}

}  // namespace mx::detail
