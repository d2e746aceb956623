// How many processors this process may use, and what a spinning thread does between looks.
#pragma once

#include <sched.h>

namespace mx {

/// The processors that this process can use at once: its affinity mask, cut by the cgroup's CPU quota
/// (v1 and v2, rounded up). At least 1. MX_NUM_THREADS overrides it. Read once per call.
int usable_cpus();

/// The processors of this process's affinity mask, whatever its quota or MX_NUM_THREADS. At least 1.
int processors();

/// One pause of a spin loop: tells the processor, does not enter the kernel.
inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Looks until done() holds: spins for some microseconds, then lets others have this processor between looks,
/// since one of them may be who it waits for. For waits that end soon.
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
