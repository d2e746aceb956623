// Time, and work of a known length.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace mx::bench {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Processor time of the calling thread: time that others had the processor is not in it.
inline int64_t thread_cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// One pause of a spin loop.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Counts to `iterations` in a register. One copy in the program, so that its speed does not depend on where
/// a caller inlined it.
void spin(uint64_t iterations);

/// Iterations of spin() in a nanosecond, on the calling thread: the best of several short tries, because
/// whatever else runs on the machine can only make it slower.
double spins_per_ns();

/// Keeps the processor busy for about this long, by the clock.
void busy_wait_ns(int64_t duration_ns);

}  // namespace mx::bench
