// What the training benchmarks have in common: options, processes, timing, output. A program describes its
// systems and calls run_train_bench() from main().
//
// The network is 784-128-64-10 with ReLU, weights as torch.nn.Linear draws them, on batches of 64 rows of
// normally distributed f32 with random labels, of which there are 16 that come in turn. A step clears the
// gradients, computes the mean cross-entropy, goes back and takes a step of SGD with a rate of 0.1 and no
// momentum. The loss is read once per block of steps.
//
//   mlp_train, mlp_infer   samples/s; inference records nothing
//   mlp_infer_8            samples/s of eight threads of the program that use one network at once
//   ..._rss                MB, the peak of resident memory of the process that did that and nothing else
//   first_step             ms, from the start of the process to the loss of the first step, with the
//                          parameters changed; measured from outside
//
// Each figure comes from a process of its own, which is confined to its processors before it starts
// (op/runner.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mx::bench {

inline constexpr int64_t kMlpSizes[] = {784, 128, 64, 10};
inline constexpr int64_t kMlpBatch = 64;
inline constexpr int64_t kMlpBatches = 16;
inline constexpr double kMlpRate = 0.1;

/// The network, its optimiser and its batches.
class TrainJob {
 public:
  virtual ~TrainJob() = default;
  /// Takes steps on the next batches in turn; returns the loss of the last one, when all work is done.
  virtual double train(int64_t steps) = 0;
  /// Computes the outputs for the batches in turn; returns when all work of this thread is done. Thread-safe.
  virtual void infer(int64_t steps) = 0;
};

struct TrainSystem {
  std::string name;
  /// NAME=VALUE for the measuring process, where the caller's environment has no NAME.
  std::function<std::vector<std::string>(int threads)> environment;
  /// Once in the measuring process, before anything else.
  std::function<void(int threads)> start;
  std::function<std::unique_ptr<TrainJob>(int64_t batches)> make;
};

/// Prints the records of each case, number of threads and system, systems in turn; the exit status of the
/// program, which is 1 also when a network did not learn. Options: --cases A,B, --threads 1,2, --systems A,B,
/// --steps N,
/// --samples N, --list, --smoke.
int run_train_bench(int argc, char** argv, const std::vector<TrainSystem>& systems);

}  // namespace mx::bench
