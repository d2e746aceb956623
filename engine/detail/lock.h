// EngineLock: the lock around the dependency state. Internal.
//
// A thread holds the lock for tens to hundreds of nanoseconds, and never while user code runs. A thread that
// does not get the lock spins, then yields (the holder may have been preempted on this very core), then
// sleeps for short periods. No thread needs to be woken, so a release is one store. A mutex of the C library
// needs a second read-modify-write for each release, which is a fifth of the budget of an operation.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include <sched.h>

#include "engine/base/cpus.h"
#include "engine/base/no_engine_lock.h"

namespace mx::detail {

/// The pause of a contending thread between two tries.
class LockBackoff {
 public:
  void operator()() {
    if (turn_ < kSpins) {
      cpu_relax();
    } else if (turn_ < kSpins + kYields) {
      sched_yield();
    } else {
      const timespec nap{0, 20'000};
      nanosleep(&nap, nullptr);
    }
    ++turn_;
  }

 private:
  static constexpr int kSpins = 100;
  static constexpr int kYields = 200;
  int turn_ = 0;
};

/// The template parameters are for the exhaustive checker (tests/engine/model), which passes its own types.
template <template <class> class Atomic = std::atomic, class Backoff = LockBackoff>
class BasicEngineLock {
 public:
  bool try_lock() {
    return locked_.load(std::memory_order_relaxed) == 0 &&
           locked_.exchange(1, std::memory_order_acquire) == 0;
  }

  void lock() {
    if (locked_.exchange(1, std::memory_order_acquire) == 0) [[likely]]
      return;
    lock_slowly();
  }

  void unlock() { locked_.store(0, std::memory_order_release); }

 private:
  void lock_slowly() {
    Backoff backoff;
    while (!try_lock()) backoff();
  }

  Atomic<uint32_t> locked_{0};
};

using SpinLock = BasicEngineLock<>;

/// The lock of an engine. In builds with assertions it counts the locks of each thread, for
/// assert_no_engine_lock().
class EngineLock {
 public:
  bool try_lock() {
    if (!lock_.try_lock()) return false;
    if constexpr (kAssertions) ++engine_locks_held;
    return true;
  }
  void lock() {
    lock_.lock();
    if constexpr (kAssertions) ++engine_locks_held;
  }
  void unlock() {
    if constexpr (kAssertions) --engine_locks_held;
    lock_.unlock();
  }

 private:
  SpinLock lock_;
};

}  // namespace mx::detail
