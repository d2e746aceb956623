// Participant: what one thread has of a replay, and how others take it while that thread is inside a node.
// Internal.
//
// The operations of a replay may block on each other (two of them meet at a barrier), so what a participant
// has not started must not be out of reach while it is in a node. Yet it works on a stack of its own without
// atomic read-modify-writes or fences: a node may be two nanoseconds. So:
//
//   the owner, at each node:   inside = n; run the node; inside = 0; look_at reached? -> the run's mutex
//   any other, now and then:   look_at = 0; heavy fence; under the run's mutex: inside != 0? -> take all
//
// Who takes and sees the owner inside knows that the owner will see look_at when it comes out, before it
// touches anything, and will wait for the mutex. Who sees it outside has lost nothing: the owner is at work.
// (Dekker's exclusion with asymmetric fences; where the light one is not free the owner exchanges instead of
// storing.)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/asymmetric_fence.h"
#include "engine/detail/lock.h"

namespace mx::detail {

class SegmentRun;

struct alignas(64) Participant {
  explicit Participant(SegmentRun& of) : run(of) {}

  std::atomic<uint64_t> inside{0};   // 0: between nodes; else the node it is in, counted from 1
  std::atomic<uint64_t> look_at{1};  // it looks up when it has run so many; 0: somebody wants its work
  std::vector<uint32_t> stack;       // the owner's; the run's mutex guards it while the owner is inside,
  size_t root = 0;                   // and so with the roots: [root, root_end) of SegmentNodes::roots
  size_t root_end = 0;
  size_t ran = 0;  // the owner's

  SegmentRun& run;
  // the registry's
  Participant* next = nullptr;
  Participant** place = nullptr;
  uint64_t seen = 0;  // `inside` when rescue() last looked
  uint64_t left = 0;  // the node in which everything has been taken
};

/// The participants of all replays of an engine. Thread-safe.
class ParticipantRegistry {
 public:
  void add(Participant& participant) {
    lock_.lock();
    participant.next = first_;
    participant.place = &first_;
    if (first_ != nullptr) first_->place = &participant.next;
    first_ = &participant;
    lock_.unlock();
  }
  /// Nobody touches it any more when this returns.
  void remove(Participant& participant) {
    lock_.lock();
    *participant.place = participant.next;
    if (participant.next != nullptr) participant.next->place = participant.place;
    lock_.unlock();
  }
  bool empty() {
    lock_.lock();
    const bool empty = first_ == nullptr;
    lock_.unlock();
    return empty;
  }
  /// Offers to others what those participants have that are in the same node as at the previous call. Returns
  /// whether there was any.
  bool rescue();

 private:
  SpinLock lock_;
  Participant* first_ = nullptr;
};

}  // namespace mx::detail
