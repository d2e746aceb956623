// Progress of a training run: on a terminal a bar that moves, elsewhere a line for each epoch.
#pragma once

#include <chrono>
#include <cstdint>

namespace mx::examples {

class Progress {
 public:
  /// Of one epoch out of `epochs`, counted from 1, with so many batches of so many images.
  Progress(int64_t epoch, int64_t epochs, int64_t batches, int64_t batch_size);

  /// After `done` batches. Loss and accuracy may be NaN.
  void show(int64_t done, double loss, double accuracy);
  void epoch_done(double loss, double accuracy);

 private:
  double images_per_second(int64_t done) const;

  int64_t epoch_, epochs_, batches_, batch_size_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace mx::examples
