// Shared by the training benchmarks: options, processes, timing, output. A program describes its systems and
// calls run_train_bench() from main().
//
// Networks (kTrainNets), with weights initialised as in torch.nn:
//   mlp          784-128-64-10 with ReLU
//   lenet        LeNet-5 for images of 28 x 28: convolutions of 6 and 16 channels, ReLU, pooling by the
//                largest value, linear layers of 120, 84 and 10
//   resnet18     the residual network of 18 layers for images of 32 x 32: a convolution of 3 x 3 first, no
//                pooling, 64 to 512 channels
//   lstm         one LSTM layer of 128 over 32 steps of 32 features; its last result goes to a linear layer
//   transformer  an embedding of 1000 tokens, two encoder layers (width 128, 4 heads, feed-forward part of
//                512, no dropout) over 64 tokens; the mean of their results goes to a linear layer
//
// Each has batches of normally distributed f32, or of random tokens for transformer, with random labels of
// ten classes. The batches are used in turn. A step clears the
// gradients, computes the mean cross-entropy, runs the backward pass and takes a step of SGD without
// momentum. The loss is read once per block of steps.
//
//   NET_train              samples/s
//   mlp_infer              samples/s; inference records nothing
//   mlp_infer_8            samples/s of eight threads of the program that use one network at once
//   gpt_decode             tokens/s of a GPT that continues one text, token by token, with a cache of keys
//   and
//                          values: vocabulary, width, heads, layers and feed-forward part of transformer,
//                          kPrompt tokens given and kDecoded written, each the likeliest
//   ..._rss                MB, the peak of resident memory of a process that ran only this case
//   ..._peak               the products' multiply-adds per second as a share of those that the processors can
//                          do in registers (op/bandwidth.h), measured in the same process; a training step
//                          counts as three forward passes. Only if Highway was found
//   first_step             ms, from the start of the process to the loss of the first step of mlp, with the
//                          parameters updated; measured from outside
//
// Each figure comes from its own process, which is confined to its processors before it starts (op/runner.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mx::bench {

struct TrainNet {
  const char* name;
  int64_t batch;
  int64_t batches;
  double rate;
  /// Steps in which mlp takes `kMlpSteps` take about as long as `steps` of this network.
  int64_t steps;
};
inline constexpr int64_t kMlpSteps = 512;
inline constexpr TrainNet kTrainNets[] = {
    {"mlp", 64, 16, 0.1, kMlpSteps}, {"lenet", 64, 8, 0.1, 64},       {"resnet18", 32, 2, 0.01, 2},
    {"lstm", 32, 8, 0.1, 24},        {"transformer", 16, 4, 0.05, 8},
};
inline constexpr int64_t kMlpSizes[] = {784, 128, 64, 10};
inline constexpr int64_t kLstmSteps = 32, kLstmInputs = 32, kLstmHidden = 128;
inline constexpr int64_t kTokens = 64, kVocabulary = 1000;
inline constexpr int64_t kWidth = 128, kHeads = 4, kLayers = 2, kFeedForward = 512;

inline constexpr int64_t kPrompt = 16, kDecoded = 112;

/// The network, its optimiser and its batches.
class TrainJob {
 public:
  virtual ~TrainJob() = default;
  /// Takes steps on the next batches in turn. Returns the loss of the last step when all work is done.
  virtual double train(int64_t steps) = 0;
  /// Computes the outputs for the batches in turn. Returns when all work of this thread is done. Thread-safe.
  virtual void infer(int64_t steps) = 0;
};

struct TrainSystem {
  std::string name;
  /// NAME=VALUE entries for the measuring process. An entry is not used if the caller's environment has NAME.
  std::function<std::vector<std::string>(int threads)> environment;
  /// The names of the networks that the system has.
  std::vector<std::string> nets;
  /// Called once in the measuring process, before anything else.
  std::function<void(int threads)> start;
  /// Makes the job of a network, with that number of batches.
  std::function<std::unique_ptr<TrainJob>(const TrainNet& net, int64_t batches)> make;
  /// Makes the GPT of gpt_decode; returns the function that writes a text. Empty: the system has none.
  std::function<std::function<void()>()> make_decoder{};
};

/// Prints the records of each case, number of threads and system, with the systems in turn. Returns the exit
/// status of the program, which is 1 also if a network did not learn. Options: --cases A,B, --threads 1,2,
/// --systems A,B, --steps N, --samples N, --list, --smoke.
int run_train_bench(int argc, char** argv, const std::vector<TrainSystem>& systems);

}  // namespace mx::bench
