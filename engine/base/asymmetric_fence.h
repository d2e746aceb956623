// A pair of fences for two threads that each write one place and then read the other's (Dekker's pattern), if
// one thread does so often and the other rarely. The light fence, for the frequent side, costs nothing. The
// heavy fence makes the kernel interrupt every running thread of the process (a microsecond or two).
//
// If both sides have written, passed their fence and read, at least one of them has seen the other's write.
// There is no other guarantee: data that one side hands to the other needs acquire and release as usual.
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

/// Thread-safe. A type, so that the exhaustive checker (tests/engine/model) can replace it by its own.
struct AsymmetricFence {
  /// For the side that passes often.
  static void light() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!detail::light_fences_are_free) [[unlikely]]
      detail::full_fence();
  }

  /// For the side that passes rarely.
  static void heavy();

  /// Returns true if light() only keeps the compiler from reordering. If false, both light() and heavy() are
  /// full fences.
  static bool light_is_free() { return detail::light_fences_are_free; }
};

}  // namespace mx
