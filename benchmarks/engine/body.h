// The body of an operation. It is the same in every system: each captures the operation's number and calls
// run_body() with it.
#pragma once

#include <atomic>
#include <cstdint>

namespace mx::bench {

class Checker;

enum class BodyKind { empty, check, spin, stamp };

struct Body {
  BodyKind kind = BodyKind::empty;
  Checker* checker = nullptr;        // check
  uint64_t spins = 0;                // spin: iterations
  std::atomic<int64_t> stamp_ns{0};  // stamp: when the body started to run
};

/// Changed only while no operation is pending.
extern Body g_body;

void run_slow_body(uint32_t i);

inline void run_body(uint32_t i) {
  if (g_body.kind != BodyKind::empty) [[unlikely]]
    run_slow_body(i);
}

}  // namespace mx::bench
