// A pair of fences for two threads that each write one place and then read the other's (Dekker's pattern),
// when one of them does so at every operation and the other hardly ever: the light side pays nothing, the
// heavy side makes the kernel interrupt every thread of the process that runs (a microsecond or two).
//
// If both sides have written, passed their fence and read, at least one of them has seen the other's write.
// Nothing else is promised: data that one side hands to the other needs acquire and release as always.
//
// Where the kernel has no membarrier(2) with MEMBARRIER_CMD_PRIVATE_EXPEDITED (Linux 4.14), both sides are
// full fences. Source: liburcu's and Folly's asymmetric fences.
#pragma once

#include <atomic>

namespace mx {

namespace detail {
extern const bool light_fences_are_free;
void full_fence();
}  // namespace detail

/// A type, so that what is built on it can be checked with others. Any thread may call either.
struct AsymmetricFence {
  /// For the side that passes often.
  static void light() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!detail::light_fences_are_free) [[unlikely]]
      detail::full_fence();
  }

  /// For the side that passes rarely.
  static void heavy();

  /// Does light() only keep the compiler from reordering? If not, it is a full fence, and heavy() is no more.
  static bool light_is_free() { return detail::light_fences_are_free; }
};

}  // namespace mx
