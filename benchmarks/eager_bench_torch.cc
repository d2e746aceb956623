// eager_bench_torch: the eager cases in libtorch.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/version.h>

#include "benchmarks/op/runner.h"
#include "benchmarks/support/report.h"

namespace {

using namespace mx::bench;
using at::Tensor;

OpCall prepare(const OpCase& c, int) {
  if (c.op == "large_overlap") return {};  // libtorch runs both operations in the calling thread
  const bool recorded = c.op == "add_recorded" || c.op == "add_fwd_bwd";
  Tensor a = at::ones({2, 2}).set_requires_grad(recorded);
  const Tensor b = at::ones({2, 2});
  if (c.op == "add" || c.op == "add_recorded") return [=] { const Tensor out = a + b; };
  if (c.op == "add_number") return [=] { const Tensor out = a + 1; };
  if (c.op == "add_inplace") return [=]() mutable { a += b; };
  if (c.op == "add_inference") {
    return [=] {
      const c10::InferenceMode inference;
      const Tensor out = a + b;
    };
  }
  const int additions = static_cast<int>(c.work);
  return [=]() mutable {
    Tensor y = a;
    for (int i = 0; i < additions; ++i) y = y + b;
    y.sum().backward();
    a.mutable_grad().reset();
  };
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{
      .bench = "eager", .name = "libtorch", .cases = eager_cases(), .prepare = prepare, .threads = {1}};
  system.environment = [](int threads) {
    return std::vector<std::string>{"OMP_NUM_THREADS=" + std::to_string(threads)};
  };
  system.start = [](int threads) {
    at::set_num_threads(threads);
    note(std::string("libtorch ") + TORCH_VERSION);
  };
  return run_op_bench(argc, argv, system);
}
