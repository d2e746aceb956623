// Shared by the training benchmarks: options, processes, timing, output. A program describes its systems and
// calls run_train_bench() from main().
//
// The network is 784-128-64-10 with ReLU, with weights initialised as in torch.nn.Linear. There are 16
// batches of 64 rows of normally distributed f32 with random labels, which are used in turn. A step clears
// the gradients, computes the mean cross-entropy, runs the backward pass and takes a step of SGD with a rate
// of 0.1 and no momentum. The loss is read once per block of steps.
//
//   mlp_train, mlp_infer   samples/s; inference records nothing
//   mlp_infer_8            samples/s of eight threads of the program that use one network at once
//   ..._rss                MB, the peak of resident memory of a process that ran only this case
//   first_step             ms, from the start of the process to the loss of the first step, with the
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

inline constexpr int64_t kMlpSizes[] = {784, 128, 64, 10};
inline constexpr int64_t kMlpBatch = 64;
inline constexpr int64_t kMlpBatches = 16;
inline constexpr double kMlpRate = 0.1;

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
  /// Called once in the measuring process, before anything else.
  std::function<void(int threads)> start;
  std::function<std::unique_ptr<TrainJob>(int64_t batches)> make;
};

/// Prints the records of each case, number of threads and system, with the systems in turn. Returns the exit
/// status of the program, which is 1 also if a network did not learn. Options: --cases A,B, --threads 1,2,
/// --systems A,B, --steps N, --samples N, --list, --smoke.
int run_train_bench(int argc, char** argv, const std::vector<TrainSystem>& systems);

}  // namespace mx::bench
