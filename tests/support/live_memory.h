// The CPU memory that arrays hold now, for tests of what programs leave behind.
#pragma once

#include <chrono>
#include <thread>

#include "engine/base/error.h"
#include "engine/device/registry.h"
#include "ndarray/ndarray.h"

namespace mx::test {

inline size_t live_bytes() { return get_device(cpu()).memory_stats().in_use_bytes; }

/// Waits for all operations, then until at most `bytes` are held. Returns false if that does not happen. The
/// second wait is needed because an operation releases its memory on the thread that ran it, a moment after
/// its result can be read.
inline bool comes_down_to(size_t bytes) {
  wait_all();
  for (int i = 0; i < 100'000 && live_bytes() > bytes; ++i) std::this_thread::yield();
  return live_bytes() <= bytes;
}

/// Waits for all operations and then until nothing has been released for 20 ms; returns what is held then.
/// What a test measures by differences starts from here: memory of the test before it may still be on its way
/// out. So may errors: one that an earlier test has left in the default engine is not this test's failure.
/// `in_use` returns the bytes that are held now.
template <class F>
size_t settled_bytes(const F& in_use) {
  try {
    wait_all();
  } catch (const Error&) {
    wait_all();
  }
  size_t held = in_use();
  for (auto since = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - since < std::chrono::milliseconds(20);) {
    std::this_thread::yield();
    if (const size_t now = in_use(); now != held) {
      held = now;
      since = std::chrono::steady_clock::now();
    }
  }
  return held;
}
/// That of the CPU.
inline size_t settled_bytes() { return settled_bytes(live_bytes); }

}  // namespace mx::test
