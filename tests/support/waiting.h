// Waits until threads of a test are blocked in a wait of the engine.
#pragma once

#include <cstdint>
#include <thread>

#include "engine/engine.h"

namespace mx::test {

/// Blocks until `threads` threads are in wait() or wait_all() for something that has not happened yet.
inline void until_waiting(const Engine& engine, uint64_t threads = 1) {
  while (engine.stats().waiting < threads) std::this_thread::yield();
}

}  // namespace mx::test
