// Asserts that a thread holds no engine's lock. Internal.
//
// A thread that holds an engine's lock must not run user code, free an exception, allocate a slab, wake a
// thread or call a driver. Such a call can take long, or it can call the engine and wait for the lock that
// its own thread holds. The places that do these things call assert_no_engine_lock(). Builds without
// assertions do not count locks.
#pragma once

#include "engine/base/check.h"

namespace mx::detail {

/// The number of engines' locks that the calling thread holds; always 0 without kAssertions.
inline thread_local constinit int engine_locks_held = 0;

inline void assert_no_engine_lock() { MX_ASSERT(engine_locks_held == 0); }

}  // namespace mx::detail
