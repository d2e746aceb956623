// eager_bench: the eager cases on our arrays. On one processor it measures the cost of a call. On two it
// measures `add`, which the caller runs itself, and `large_overlap`, which workers run.
#include <cmath>

#include "benchmarks/op/runner.h"
#include "executor/autograd/autograd.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_custom.h"
#include "operators/reduce.h"

namespace {

using namespace mx::bench;
using mx::NDArray;

// Long enough for the cost of a hand-over to be negligible. At the size of the case its loop has one piece,
// so that each of the two operations has one thread.
const mx::Operator& slow_operator() {
  static const mx::Operator op =
      mx::unary_operator("bench_slow", "exp(sin(x)).", [](auto x) { return std::exp(std::sin(x)); });
  return op;
}

OpCall overlap(const OpCase& c, bool wait_between) {
  const NDArray a = mx::array(op_input(c.elements, 1)), b = mx::array(op_input(c.elements, 2));
  return [=] {
    const NDArray x = mx::call(slow_operator(), {}, a);
    if (wait_between) x.wait();
    const NDArray y = mx::call(slow_operator(), {}, b);
    x.wait();
    y.wait();
  };
}

OpCall prepare(const OpCase& c, int threads) {
  if (c.op == "large_overlap") return threads > 1 ? overlap(c, false) : OpCall();
  if (threads > 1 && c.op != "add") return {};
  NDArray a = mx::ones({2, 2});
  const NDArray b = mx::ones({2, 2});
  if (c.op == "add") return [=] { const NDArray out = a + b; };
  if (c.op == "add_number") return [=] { const NDArray out = a + 1; };
  if (c.op == "add_inplace") return [=]() mutable { a += b; };
  NDArray w = mx::ones({2, 2}).requires_grad_();
  if (c.op == "add_recorded") return [=] { const NDArray out = w + b; };
  if (c.op != "add_fwd_bwd") return {};
  const int additions = static_cast<int>(c.work);
  return [=] {
    NDArray y = w;
    for (int i = 0; i < additions; ++i) y = y + b;
    mx::sum(y).backward();
    w.set_grad({});
  };
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{.bench = "eager", .name = "mx_eager", .cases = eager_cases(), .prepare = prepare};
  system.prepare_other = [](const OpCase& c, int) { return overlap(c, true); };
  return run_op_bench(argc, argv, system);
}
