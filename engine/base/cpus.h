// How many processors this process may use, and the pauses of spin loops.
#pragma once

#include <sched.h>

namespace mx {

/// Returns the number of processors that this process can use at once: those of its affinity mask, but no
/// more than the cgroup's CPU quota (v1 and v2, rounded up). At least 1. MX_NUM_THREADS overrides it. Each
/// call reads all of them anew.
int usable_cpus();

/// Returns the number of processors of this process's affinity mask, regardless of its quota and of
/// MX_NUM_THREADS. At least 1.
int processors();

/// One pause of a spin loop: a hint to the processor, without entering the kernel.
inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until done() returns true. After some microseconds it yields between two calls of done(), because
/// the thread that it waits for may need this processor. For waits that end soon.
template <class Done>
void spin_until(const Done& done) {
  for (int patience = 1000; !done();) {
    cpu_relax();
    if (patience > 0) {
      --patience;
    } else {
      sched_yield();
    }
  }
}

}  // namespace mx
