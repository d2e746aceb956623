// Time stamps. `ticks()` reads the processor's counter where there is one (about 10 ns), `now_ns()` reads the
// monotonic clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace mx {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<uint64_t>(now_ns());
#endif
}

/// Returns the ticks per microsecond. The first call measures them, which takes about a millisecond.
double ticks_per_us();

}  // namespace mx
