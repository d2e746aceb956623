#include "engine/base/threads.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
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

void* wait_for_end(void* end) {
  // The C library's memory of a thread (an arena, tens of megabytes of address space) comes with its first
  // use.
  void* volatile used = std::malloc(1000);  // (volatile, or the compiler leaves it out)
  std::free(used);
  auto& word = *static_cast<std::atomic<uint32_t>*>(end);
  while (word.load(std::memory_order_acquire) == 0) futex_wait(word, 0);
  return nullptr;
}

int start_and_end(int wanted) {
  std::vector<pthread_t> threads(static_cast<size_t>(wanted));
  std::atomic<uint32_t> end{0};
  size_t started = 0;
  while (started < threads.size() && pthread_create(&threads[started], nullptr, &wait_for_end, &end) == 0)
    ++started;
  end.store(1, std::memory_order_release);
  futex_wake(end);
  for (size_t i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  return static_cast<int>(started);
}

}  // namespace

int startable_threads(int wanted) {
  static std::mutex mutex;
  static Limits limits;
  static int known = 0;  // under these limits
  const std::lock_guard lock(mutex);
  const Limits now = current_limits();
  if (!(now == limits)) known = 0;
  limits = now;
  if (known < wanted) known = std::max(known, start_and_end(wanted));
  // Where they end some room is left: threads take more than their stacks.
  return known < wanted ? known * 3 / 4 : wanted;
}

std::thread start_thread(const char* who, std::function<void()> f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& e) {
    throw OutOfMemory(
        detail::concat("[", who, "] expected one more thread, but the system has none: ", e.what()));
  }
}

}  // namespace mx
