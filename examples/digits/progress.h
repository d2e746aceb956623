// Progress of a training run: on a terminal a bar for each epoch, elsewhere a line for each epoch.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "nn/training/progress_bar.h"

namespace mx::examples {

class Progress {
 public:
  /// Of one epoch out of `epochs`, counted from 1, with so many batches of so many images.
  Progress(int64_t epoch, int64_t epochs, int64_t batches, int64_t batch_size);

  /// After `done` batches. Loss and accuracy may be NaN.
  void show(int64_t done, double loss, double accuracy);
  void epoch_done(double loss, double accuracy);

 private:
  int64_t epoch_, epochs_, batches_, batch_size_;
  std::chrono::steady_clock::time_point start_;
  std::optional<training::ProgressBar> bar_;  // on a terminal
};

}  // namespace mx::examples
