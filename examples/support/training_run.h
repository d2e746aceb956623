// TrainingRun: the loop over epochs and batches that training programs share. The program gives the step.
//
//   data::Loader loader(...);
//   examples::TrainingRun run(options, loader);
//   run.keep("model", net).keep("optimizer", optimizer);
//   run.train([&](const NDArray& images, const NDArray& labels) {
//     const NDArray loss = nn::cross_entropy(net(images), labels);
//     optimizer.zero_grad();
//     loss.backward();
//     optimizer.step();
//     return loss;
//   });
//
// It shows a progress bar, writes a checkpoint after each epoch if the program has --save, continues from it
// with --resume, and writes the curve of the loss for TensorBoard with --events. A run that was killed and
// resumed ends with the bits of one that was not. At the end it prints images per second and the memory on
// the standard error.
//
// Thread-safety: one thread at a time.
#pragma once

#include <mx/mx.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "examples/support/command_line.h"
#include "examples/support/memory_watch.h"

namespace mx::examples {

/// The options that all training programs have. A program sets its own defaults.
struct RunOptions {
  std::string data = "examples/data/mnist";
  int64_t epochs = 10;
  int64_t batch = 64;
  int64_t seed = 1;
  double rate = 0.1;
  std::string save = "";    ///< checkpoint; empty: none
  std::string events = "";  ///< folder for TensorBoard; empty: none
  bool resume = false;

  void add_to(CommandLine& line);
};

class TrainingRun {
 public:
  using Step = std::function<NDArray(const NDArray& images, const NDArray& labels)>;

  /// The loader must outlive the run. `other_options`: a text of the options beside RunOptions that a resumed
  /// run must share. Throws InvalidArgument for --resume without --save, and FileError if the checkpoint or
  /// the curves cannot be written.
  TrainingRun(const RunOptions& options, data::Loader& loader, const std::string& other_options = "");

  /// Adds a part to the checkpoint. The object must outlive the run.
  template <class T>
  TrainingRun& keep(const std::string& name, T& object) {
    checkpoint_.add(name, object);
    return *this;
  }

  /// Returns the number of steps of all epochs, for schedules.
  int64_t steps() const { return options_.epochs * loader_.batches(); }

  /// Calls `step` for each batch; it returns the loss, one number. Throws NumericError, before it saves,
  /// after an epoch whose loss is not finite, and InvalidArgument for a checkpoint of a run with other
  /// options.
  void train(const Step& step);

  /// Returns the writer for TensorBoard; null without --events.
  training::EventWriter* events() { return events_ ? &*events_ : nullptr; }

 private:
  double train_epoch(const Step& step, training::ProgressBar& bar);

  const RunOptions options_;
  data::Loader& loader_;
  training::Checkpoint checkpoint_;
  std::optional<training::EventWriter> events_;
  MemoryWatch memory_;  // counts the steps of this process
  int64_t epoch_ = 0;
};

}  // namespace mx::examples
