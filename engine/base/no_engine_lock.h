// Asserts that a thread holds no engine's lock. Internal.
//
// Under an engine's lock nothing may run user code, free an exception, allocate a slab, wake a thread or call
// a driver: such a call can take long, or come back to the engine and wait for the lock that its own thread
// holds. The places that do these things call assert_no_engine_lock(). In builds without assertions nothing
// is counted.
#pragma once

#include "engine/base/check.h"

namespace mx::detail {

/// How many engines' locks the calling thread holds; always 0 without kAssertions.
inline thread_local constinit int engine_locks_held = 0;

inline void assert_no_engine_lock() { MX_ASSERT(engine_locks_held == 0); }

}  // namespace mx::detail
