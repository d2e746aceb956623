// train_bench_torch: the training benchmark in libtorch, with its default and with a tuned environment.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "benchmarks/support/report.h"
#include "benchmarks/train/runner.h"

namespace {

using namespace mx::bench;
using at::Tensor;

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Flatten;
using torch::nn::Linear;
using torch::nn::MaxPool2d;
using torch::nn::ReLU;
using torch::nn::Sequential;

Sequential mlp() {
  return Sequential(Linear(kMlpSizes[0], kMlpSizes[1]), ReLU(), Linear(kMlpSizes[1], kMlpSizes[2]), ReLU(),
                    Linear(kMlpSizes[2], kMlpSizes[3]));
}

Sequential lenet() {
  return Sequential(Conv2d(Conv2dOptions(1, 6, 5).padding(2)), ReLU(), MaxPool2d(2), Conv2d(6, 16, 5), ReLU(),
                    MaxPool2d(2), Flatten(), Linear(400, 120), ReLU(), Linear(120, 84), ReLU(),
                    Linear(84, 10));
}

Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return Conv2d(Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BlockImpl : torch::nn::Module {
  Sequential body, shortcut{nullptr};
  BlockImpl(int64_t in, int64_t out, int64_t stride)
      : body(conv(in, out, 3, stride), BatchNorm2d(out), ReLU(), conv(out, out, 3, 1), BatchNorm2d(out)) {
    register_module("body", body);
    if (in == out && stride == 1) return;
    shortcut = register_module("shortcut", Sequential(conv(in, out, 1, stride), BatchNorm2d(out)));
  }
  Tensor forward(const Tensor& x) {
    return torch::relu((shortcut ? shortcut->forward(x) : x) + body->forward(x));
  }
};
TORCH_MODULE(Block);

Sequential resnet18() {
  Sequential net(conv(3, 64, 3, 1), BatchNorm2d(64), ReLU());
  int64_t in = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    net->push_back(Block(in, out, in == out ? 1 : 2));
    net->push_back(Block(out, out, 1));
    in = out;
  }
  net->push_back(torch::nn::AdaptiveAvgPool2d(1));
  net->push_back(Flatten());
  net->push_back(Linear(512, 10));
  return net;
}

struct LastOfLstmImpl : torch::nn::Module {
  torch::nn::LSTM lstm;
  LastOfLstmImpl() : lstm(torch::nn::LSTMOptions(kLstmInputs, kLstmHidden)) { register_module("lstm", lstm); }
  Tensor forward(const Tensor& x) { return std::get<0>(lstm->forward(x)).select(0, -1); }
};
TORCH_MODULE(LastOfLstm);

struct EncoderImpl : torch::nn::Module {
  torch::nn::TransformerEncoder encoder;
  EncoderImpl()
      : encoder(torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayerOptions(kWidth, kHeads)
                                                         .dim_feedforward(kFeedForward)
                                                         .dropout(0),
                                                     kLayers)) {
    register_module("encoder", encoder);
  }
  Tensor forward(const Tensor& x) { return encoder->forward(x).mean(0); }
};
TORCH_MODULE(Encoder);

Sequential transformer() {
  return Sequential(torch::nn::Embedding(kVocabulary, kWidth), Encoder(), Linear(kWidth, 10));
}

Sequential make_network(const std::string& name) {
  if (name == "lenet") return lenet();
  if (name == "resnet18") return resnet18();
  if (name == "lstm") return Sequential(LastOfLstm(), Linear(kLstmHidden, 10));
  if (name == "transformer") return transformer();
  return mlp();
}

Tensor make_input(const std::string& name, int64_t batch) {
  if (name == "lenet") return torch::randn({batch, 1, 28, 28});
  if (name == "resnet18") return torch::randn({batch, 3, 32, 32});
  if (name == "lstm") return torch::randn({kLstmSteps, batch, kLstmInputs});
  if (name == "transformer") return torch::randint(0, kVocabulary, {kTokens, batch}, torch::kLong);
  return torch::randn({batch, kMlpSizes[0]});
}

class Job final : public TrainJob {
 public:
  Job(const TrainNet& net, int64_t batches)
      : net_(make_network(net.name)), optimizer_(net_->parameters(), torch::optim::SGDOptions(net.rate)) {
    for (int64_t i = 0; i < batches; ++i) {
      inputs_.push_back(make_input(net.name, net.batch));
      labels_.push_back(torch::randint(0, 10, {net.batch}, torch::kLong));
    }
  }

  double train(int64_t steps) override {
    Tensor loss;
    for (int64_t i = 0; i < steps; ++i) {
      const size_t k = next();
      optimizer_.zero_grad();
      loss = torch::nn::functional::cross_entropy(net_->forward(inputs_[k]), labels_[k]);
      loss.backward();
      optimizer_.step();
    }
    return loss.item<float>();
  }

  void infer(int64_t steps) override {
    const torch::NoGradGuard pause;
    for (int64_t i = 0; i < steps; ++i) net_->forward(inputs_[static_cast<size_t>(i) % inputs_.size()]);
  }

 private:
  size_t next() { return static_cast<size_t>(count_++) % inputs_.size(); }

  Sequential net_;
  torch::optim::SGD optimizer_;
  std::vector<Tensor> inputs_, labels_;
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
  const auto make = [](const TrainNet& net, int64_t batches) { return std::make_unique<Job>(net, batches); };
  const std::vector<std::string> nets = {"mlp", "lenet", "resnet18", "lstm", "transformer"};
  return run_train_bench(
      argc, argv,
      {{"libtorch", environment, nets, start, make}, {"libtorch_tuned", tuned, nets, start, make}});
}
