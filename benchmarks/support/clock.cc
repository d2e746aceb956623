#include "benchmarks/support/clock.h"

#include <algorithm>

namespace mx::bench {

__attribute__((noinline)) void spin(uint64_t iterations) {
  for (; iterations != 0; --iterations) asm volatile("" : "+r"(iterations));
}

double spins_per_ns() {
  constexpr uint64_t kIterations = 1'000'000;
  double best = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t start = now_ns();
    spin(kIterations);
    best = std::max(best, static_cast<double>(kIterations) / static_cast<double>(now_ns() - start));
  }
  return best;
}

void busy_wait_ns(int64_t duration_ns) {
  const int64_t end = now_ns() + duration_ns;
  while (now_ns() < end) relax();
}

}  // namespace mx::bench
