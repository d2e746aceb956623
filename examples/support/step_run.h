// StepRun: the loop over steps of training programs whose data have no epochs. The program gives the step.
//
//   examples::StepRun run(options, "width=128");
//   run.keep("model", net).keep("optimizer", optimizer);
//   run.train([&](int64_t step) {
//     const NDArray loss = ...;
//     optimizer.zero_grad();
//     loss.backward();
//     optimizer.step();
//     return examples::StepResult{loss, tokens};
//   });
//
// It prints the loss and tokens per second from time to time, and writes a checkpoint each time if the
// program has --save; --resume continues from it. A run that was killed and resumed ends with the bits of one
// that was not, if all that the steps depend on is kept: the default random generator of the CPU is, other
// generators and what the program remembers from step to step must be added by keep(). At the end it prints
// the memory on the standard error.
//
// Thread-safety: one thread at a time.
#pragma once

#include <mx/mx.h>

#include <cstdint>
#include <functional>
#include <string>

#include "examples/support/command_line.h"
#include "examples/support/memory_watch.h"

namespace mx::examples {

/// The options of the loop. A program sets its own defaults.
struct StepOptions {
  int64_t steps = 1000;
  int64_t seed = 1;
  std::string save = "";  ///< checkpoint; empty: none
  bool resume = false;

  void add_to(CommandLine& line);
};

struct StepResult {
  NDArray loss;  ///< one number
  int64_t tokens = 0;
};

class StepRun {
 public:
  /// `other_options`: a text of the options beside StepOptions that a resumed run must share. Throws
  /// InvalidArgument for --resume without --save, and FileError if the checkpoint cannot be written.
  StepRun(const StepOptions& options, const std::string& other_options);

  /// Adds a part to the checkpoint: an object, which must outlive the run, or an array.
  template <class T>
  StepRun& keep(const std::string& name, T& object) {
    checkpoint_.add(name, object);
    return *this;
  }

  /// Calls `step` with the numbers 1 to --steps; a resumed run begins behind the step of its checkpoint.
  /// Throws NumericError, before it saves, if the mean loss is not finite, and InvalidArgument for a
  /// checkpoint of a run with other options.
  void train(const std::function<StepResult(int64_t step)>& step);

 private:
  const StepOptions options_;
  training::Checkpoint checkpoint_;
  MemoryWatch memory_;
  int64_t done_ = 0;  // steps
};

}  // namespace mx::examples
