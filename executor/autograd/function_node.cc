#include "executor/autograd/function_node.h"

#include "engine/base/check.h"

namespace mx::detail {

void FunctionNode::back(const Step& step) {
  if (!back_) throw_released(name_);
  const Back back = back_;  // a copy: release() may be called while it runs
  back(step);
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
      "] were released by an earlier backward() or grad(); pass retain_graph to the earlier call"));
}

}  // namespace mx::detail
