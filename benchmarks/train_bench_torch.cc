// train_bench_torch: the training benchmark in libtorch, with its default and with a tuned environment.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/report.h"
#include "benchmarks/train/runner.h"

namespace {

using namespace mx::bench;
using at::Tensor;

struct Mlp : torch::nn::Module {
  torch::nn::Linear a{kMlpSizes[0], kMlpSizes[1]}, b{kMlpSizes[1], kMlpSizes[2]},
      c{kMlpSizes[2], kMlpSizes[3]};
  Mlp() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  Tensor forward(const Tensor& x) { return c(torch::relu(b(torch::relu(a(x))))); }
};

class Job final : public TrainJob {
 public:
  explicit Job(int64_t batches) : optimizer_(net_.parameters(), torch::optim::SGDOptions(kMlpRate)) {
    for (int64_t i = 0; i < batches; ++i) {
      images_.push_back(torch::randn({kMlpBatch, kMlpSizes[0]}));
      labels_.push_back(torch::randint(0, kMlpSizes[3], {kMlpBatch}, torch::kLong));
    }
  }

  double train(int64_t steps) override {
    Tensor loss;
    for (int64_t i = 0; i < steps; ++i) {
      const size_t k = next();
      optimizer_.zero_grad();
      loss = torch::nn::functional::cross_entropy(net_.forward(images_[k]), labels_[k]);
      loss.backward();
      optimizer_.step();
    }
    return loss.item<float>();
  }

  void infer(int64_t steps) override {
    const torch::NoGradGuard pause;
    for (int64_t i = 0; i < steps; ++i) net_.forward(images_[static_cast<size_t>(i) % images_.size()]);
  }

 private:
  size_t next() { return static_cast<size_t>(count_++) % images_.size(); }

  Mlp net_;
  torch::optim::SGD optimizer_;
  std::vector<Tensor> images_, labels_;
  int64_t count_ = 0;
};

std::vector<std::string> environment(int threads) { return {"OMP_NUM_THREADS=" + std::to_string(threads)}; }

// OpenMP teams that sleep instead of spinning, an allocator that keeps freed memory, and the right kernels in
// an OpenBLAS that mistakes new processors for old ones.
std::vector<std::string> tuned(int threads) {
  std::vector<std::string> entries = environment(threads);
  entries.insert(entries.end(), {"OMP_WAIT_POLICY=passive", "MALLOC_TRIM_THRESHOLD_=1073741824",
                                 "MALLOC_MMAP_THRESHOLD_=1073741824", "MALLOC_TOP_PAD_=16777216"});
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vl")) entries.push_back("OPENBLAS_CORETYPE=SkylakeX");
#endif
  return entries;
}

void start(int threads) {
  // The package works with the reference BLAS too, but a hundred times slower, which would be no fair
  // comparison.
  if (!at::hasMKL() && dlsym(RTLD_DEFAULT, "openblas_get_config") == nullptr)
    note("libtorch runs without OpenBLAS and MKL here, so it is slow; install libopenblas-dev");
  at::set_num_threads(threads);
  torch::manual_seed(1);
}

}  // namespace

int main(int argc, char** argv) {
  const auto make = [](int64_t batches) { return std::make_unique<Job>(batches); };
  return run_train_bench(argc, argv,
                         {{"libtorch", environment, start, make}, {"libtorch_tuned", tuned, start, make}});
}
