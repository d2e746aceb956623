// Clocks, and work of a known length.
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

/// Returns the processor time of the calling thread, which excludes the time while it is preempted.
inline int64_t thread_cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// One pause in a spin loop.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Counts to `iterations` in a register. The program has only one copy of it, so that its speed does not
/// depend on inlining into the caller.
void spin(uint64_t iterations);

/// Returns the iterations of spin() per nanosecond on the calling thread: the best of several short
/// measurements, because other load on the machine can only make it slower.
double spins_per_ns();

/// Keeps the processor busy for about this time, by the clock.
void busy_wait_ns(int64_t duration_ns);

}  // namespace mx::bench
