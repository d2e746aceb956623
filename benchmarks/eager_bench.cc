// eager_bench: the eager cases on our arrays.
#include "benchmarks/op/runner.h"
#include "executor/autograd/autograd.h"
#include "operators/elementwise_binary.h"
#include "operators/reduce.h"

namespace {

using namespace mx::bench;
using mx::NDArray;

OpCall prepare(const OpCase& c, int) {
  NDArray a = mx::ones({2, 2});
  const NDArray b = mx::ones({2, 2});
  if (c.op == "add") return [=] { const NDArray out = a + b; };
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
  return run_op_bench(
      argc, argv,
      {.bench = "eager", .name = "mx_eager", .cases = eager_cases(), .prepare = prepare, .threads = {1}});
}
