#include "examples/digits/progress.h"

#include <unistd.h>

#include <cstdio>
#include <string>

namespace mx::examples {
namespace {

using Clock = std::chrono::steady_clock;
using Number = long long;  // a type that printf has a format for

}  // namespace

Progress::Progress(int64_t epoch, int64_t epochs, int64_t batches, int64_t batch_size)
    : epoch_(epoch),
      epochs_(epochs),
      batches_(batches),
      batch_size_(batch_size),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()) {}

double Progress::images_per_second(int64_t done) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return seconds > 0 ? static_cast<double>(done * batch_size_) / seconds : 0;
}

void Progress::show(int64_t done, double loss, double accuracy) {
  if (!terminal_) return;
  constexpr int64_t kWidth = 30;
  const auto filled = static_cast<size_t>(kWidth * done / batches_);
  const double rate = images_per_second(done);
  const auto rest = static_cast<double>(((epochs_ - epoch_ + 1) * batches_ - done) * batch_size_);
  std::fprintf(stderr,
               "\repoch %2lld/%lld [%s%s] loss %.4f  accuracy %.4f  %.0f images/s  %.0f s left \033[K",
               static_cast<Number>(epoch_), static_cast<Number>(epochs_), std::string(filled, '#').c_str(),
               std::string(kWidth - filled, '.').c_str(), loss, accuracy, rate, rate > 0 ? rest / rate : 0);
}

void Progress::epoch_done(double loss, double accuracy) {
  std::fprintf(stderr, "%sepoch %2lld/%lld  loss %.4f  accuracy %.4f  %.0f images/s\n",
               terminal_ ? "\r\033[K" : "", static_cast<Number>(epoch_), static_cast<Number>(epochs_), loss,
               accuracy, images_per_second(batches_));
}

}  // namespace mx::examples
