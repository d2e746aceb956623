// eager_bench: the eager cases on our arrays.
#include "benchmarks/op/runner.h"
#include "operators/elementwise_binary.h"

namespace {

using namespace mx::bench;
using mx::NDArray;

OpCall prepare(const OpCase& c, int) {
  NDArray a = mx::ones({2, 2});
  const NDArray b = mx::ones({2, 2});
  if (c.op == "add") return [=] { const NDArray out = a + b; };
  if (c.op == "add_inplace") return [=]() mutable { a += b; };
  return {};  // without gradients yet
}

}  // namespace

int main(int argc, char** argv) {
  return run_op_bench(argc, argv, {"eager", "mx_eager", eager_cases(), nullptr, nullptr, prepare, {1}});
}
