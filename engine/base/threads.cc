#include "engine/base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/futex.h"

namespace mx {

namespace {

struct Limits {
  rlim_t processes = 0;
  rlim_t address_space = 0;
  bool operator==(const Limits&) const = default;
};

Limits current_limits() {
  rlimit processes{}, address_space{};
  getrlimit(RLIMIT_NPROC, &processes);
  getrlimit(RLIMIT_AS, &address_space);
  return {processes.rlim_cur, address_space.rlim_cur};
}

struct Probe {
  std::atomic<uint32_t> running{0};  // threads that have used the heap
  std::atomic<uint32_t> end{0};
};

void* wait_for_end(void* argument) {
  auto& probe = *static_cast<Probe*>(argument);
  // The C library maps the heap arena of a thread (tens of megabytes of address space) at the first use.
  void* volatile used = std::malloc(1000);  // volatile, because the compiler removes the call otherwise
  std::free(used);
  probe.running.fetch_add(1, std::memory_order_release);
  futex_wake(probe.running);
  while (probe.end.load(std::memory_order_acquire) == 0) futex_wait(probe.end, 0);
  return nullptr;
}

// Returns how many threads could be started. With `one_by_one` each thread has its heap arena before the next
// one starts; without it, all stacks could fit although the stacks and the arenas together do not.
int start_and_end(int wanted, bool one_by_one) {
  std::vector<pthread_t> threads(static_cast<size_t>(wanted));
  Probe probe;
  uint32_t started = 0;
  while (started < threads.size() && pthread_create(&threads[started], nullptr, &wait_for_end, &probe) == 0) {
    ++started;
    if (!one_by_one) continue;
    for (uint32_t seen; (seen = probe.running.load(std::memory_order_acquire)) < started;)
      futex_wait(probe.running, seen);
  }
  probe.end.store(1, std::memory_order_release);
  futex_wake(probe.end);
  for (size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  return static_cast<int>(started);
}

// The argument of the system call sched_setattr(), which the C library of Debian 12 does not declare.
struct SchedulerSettings {
  uint32_t size = sizeof(SchedulerSettings);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t slice_ns = 0;  // "runtime": since Linux 6.12 the length of a time slice
  uint64_t deadline = 0, period = 0;
};

constexpr uint64_t kShortestSliceNs = 100'000;  // Linux takes no less

}  // namespace

int startable_threads(int wanted) {
  static std::mutex mutex;
  static Limits limits;
  static int known = 0;  // under these limits
  const std::lock_guard lock(mutex);
  const Limits now = current_limits();
  if (!(now == limits)) known = 0;
  limits = now;
  if (known < wanted) known = std::max(known, start_and_end(wanted, limits.address_space != RLIM_INFINITY));
  // Leaves a reserve: running threads need more memory than the probe's threads did.
  return known < wanted ? known * 3 / 4 : wanted;
}

std::thread start_thread(const char* who, std::function<void()> f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& e) {
    throw OutOfMemory(
        detail::concat("[", who, "] expected to start one more thread, but the system refused: ", e.what()));
  }
}

void prefer_quick_wakeup() noexcept {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  SchedulerSettings settings;
  settings.nice = getpriority(PRIO_PROCESS, 0);
  settings.slice_ns = kShortestSliceNs;
  syscall(SYS_sched_setattr, 0, &settings, 0);
}

}  // namespace mx
