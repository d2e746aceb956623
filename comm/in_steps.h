// Waiting in steps, so that what happens elsewhere ends a wait early. Internal.
//
// Thread-safety: a function without state.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/deadline.h"
#include "engine/base/error.h"

namespace mx::comm {

/// Returns f(moment), where the moment is at most a fifth of a second away. As long as f throws Timeout and
/// the deadline has not passed, calls check(), which may throw, and then f again. Without a check, f gets the
/// deadline itself.
template <class F>
auto in_steps(const std::function<void()>& check, Deadline deadline, const F& f) {
  constexpr int64_t kStepMs = 200;
  for (;;) {
    const Deadline moment = check ? earlier(deadline, Deadline::after_ms(kStepMs)) : deadline;
    try {
      return f(moment);
    } catch (const Timeout&) {
      if (deadline.passed()) throw;
    }
    check();
  }
}

}  // namespace mx::comm
