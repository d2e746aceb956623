// CallChoice: which of the calls that wait in a CallSequence starts next, agreed by all ranks. Internal.
//
// Each rank sends which of its calls are ready, and rank 0 sends the order in which it prefers them. From
// the same records, every rank computes the same choice:
//
//   1. of the calls that are ready on all ranks, the one that rank 0 prefers;
//   2. if none is ready on all ranks, the first call in the order of the program.
//
//   call               0  1  2  3  4
//   ready on rank 0       x  x     x    rank 0 prefers 4, then 2, then 1
//   ready on rank 1       x  x  x       so all ranks choose 2
//
// Only the priorities of rank 0 count, so priorities that differ between ranks cannot divide them.
//
// The source of the idea is the coordination of Horovod, which also takes only what is ready everywhere.
//
// Thread-safety: values without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mx::detail {

struct CallChoice {
  /// Calls farther behind the first one than this do not take part.
  static constexpr size_t kWindow = 256;
  static constexpr size_t kMostPreferred = 31;

  /// Bit i of word w: the call at distance 64 w + i from the first one is ready.
  uint64_t ready[kWindow / 64] = {};
  /// The distances of the calls of the highest priorities, highest first.
  uint8_t preferred[kMostPreferred] = {};
  uint8_t preferred_count = 0;

  /// Adds a ready call. Precondition: its distance from the first call is below kWindow. Among the first
  /// kMostPreferred calls that are added, those that come first are preferred.
  void add(size_t distance);
  /// Returns the distance of the call to start. Precondition: there is at least one record.
  static size_t choose(std::span<const CallChoice> ranks);
};

static_assert(sizeof(CallChoice) == 64, "records are sent as bytes");

}  // namespace mx::detail
