// train_bench: the training benchmark (benchmarks/train/runner.h) on our arrays, eagerly.
#include <functional>
#include <memory>
#include <vector>

#include "benchmarks/train/networks.h"
#include "benchmarks/train/runner.h"
#include "executor/autograd/autograd.h"
#include "nn/generation/generate.h"
#include "nn/losses.h"
#include "operators/random.h"
#include "optim/optimizers.h"

namespace {

using namespace mx::bench;
using mx::NDArray;

class Job final : public TrainJob {
 public:
  Job(const TrainNet& net, int64_t batches)
      : net_(make_network(net.name)), optimizer_(net_.parameters(), {.lr = net.rate}) {
    for (int64_t i = 0; i < batches; ++i) {
      inputs_.push_back(make_input(net.name, net.batch));
      labels_.push_back(mx::randint(0, 10, {net.batch}));
    }
    mx::wait_all();
  }

  double train(int64_t steps) override {
    NDArray loss;
    for (int64_t i = 0; i < steps; ++i) {
      const size_t k = next();
      optimizer_.zero_grad();
      loss = mx::nn::cross_entropy(net_(inputs_[k]), labels_[k]);
      loss.backward();
      optimizer_.step();
    }
    const double value = loss.item<float>();
    mx::wait_all();  // waits until the last step has updated the parameters
    return value;
  }

  void infer(int64_t steps) override {
    const mx::NoGrad pause;
    for (int64_t i = 0; i < steps; ++i) net_(inputs_[static_cast<size_t>(i) % inputs_.size()]);
    mx::wait_all();
  }

 private:
  size_t next() { return static_cast<size_t>(count_++) % inputs_.size(); }

  mx::nn::Sequential net_;
  mx::optim::SGD optimizer_;
  std::vector<NDArray> inputs_, labels_;
  int64_t count_ = 0;
};

std::function<void()> make_decoder() {
  const mx::nn::GPT gpt({.vocab_size = kVocabulary,
                         .n_positions = kPrompt + kDecoded,
                         .n_embd = kWidth,
                         .n_layer = kLayers,
                         .n_head = kHeads,
                         .n_inner = kFeedForward});
  const std::vector<int64_t> prompt = mx::randint(0, kVocabulary, {kPrompt}).to_vector<int64_t>();
  return [=] { mx::nn::generate(gpt, prompt, {.max_new_tokens = kDecoded, .top_k = 1}); };
}

}  // namespace

int main(int argc, char** argv) {
  TrainSystem system{"mx_eager",
                     nullptr,
                     network_names(),
                     [](int) { mx::manual_seed(1); },
                     [](const TrainNet& net, int64_t batches) { return std::make_unique<Job>(net, batches); },
                     make_decoder};
  return run_train_bench(argc, argv, {system});
}
