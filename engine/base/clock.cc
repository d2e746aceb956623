#include "engine/base/clock.h"

namespace mx {

double ticks_per_us() {
  static const double rate = [] {
    const int64_t begin_ns = now_ns();
    const uint64_t begin = ticks();
    while (now_ns() - begin_ns < 1'000'000) {
    }
    const uint64_t end = ticks();
    return static_cast<double>(end - begin) * 1000.0 / static_cast<double>(now_ns() - begin_ns);
  }();
  return rate;
}

}  // namespace mx
