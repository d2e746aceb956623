// Sleeping on an atomic word, with a time limit. Linux.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "engine/base/no_engine_lock.h"

namespace mx {

/// Sleeps while `word` holds `expected`, for at most `timeout_ns` (negative: no limit). May return early.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns = -1) {
  timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected,
          timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word, int count = INT_MAX) {
  detail::assert_no_engine_lock();
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace mx
