#include "examples/digits/progress.h"

#include <unistd.h>

#include <cstdio>
#include <string>

namespace mx::examples {

using Clock = std::chrono::steady_clock;

Progress::Progress(int64_t epoch, int64_t epochs, int64_t batches, int64_t batch_size)
    : epoch_(epoch), epochs_(epochs), batches_(batches), batch_size_(batch_size), start_(Clock::now()) {
  if (isatty(STDERR_FILENO) != 0)
    bar_.emplace(batches, training::ProgressBarOptions{.text = "epoch " + std::to_string(epoch) + '/' +
                                                               std::to_string(epochs)});
}

void Progress::show(int64_t done, double loss, double accuracy) {
  if (!bar_) return;
  bar_->note("loss", loss);
  bar_->note("accuracy", accuracy);
  bar_->advance(done - bar_->done());
}

void Progress::epoch_done(double loss, double accuracy) {
  using Number = long long;  // a type that printf has a format for
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(batches_ * batch_size_) / seconds : 0;
  if (bar_) {
    show(batches_, loss, accuracy);
    bar_->note("images/s", rate);
    bar_->finish();
    return;
  }
  std::fprintf(stderr, "epoch %2lld/%lld  loss %.4f  accuracy %.4f  %.0f images/s\n",
               static_cast<Number>(epoch_), static_cast<Number>(epochs_), loss, accuracy, rate);
}

}  // namespace mx::examples
