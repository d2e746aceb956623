// Participant: one thread's share of a replay, which other threads can take while that thread is inside a
// node. Internal.
//
// The nodes of a replay may block on each other: for instance two nodes may meet at a barrier. So other
// threads must be able to take the nodes that a participant has not started while it is in a node. Yet the
// participant works on a stack of its own without atomic read-modify-writes or fences, because a node may
// take only two nanoseconds. The protocol:
//
//   the owner, at each node:   inside = n; run the node; inside = 0; look_at reached? -> the run's mutex
//   any other, now and then:   look_at = 0; heavy fence; under the run's mutex: inside != 0? -> take all
//
// If the other thread sees the owner inside, then the owner will see look_at == 0 when its node ends, before
// it touches its stack, and will wait for the mutex. If the other thread sees the owner outside, it takes
// nothing; none is needed, because the owner is making progress. (This is Dekker's algorithm with asymmetric
// fences. If the light fence is not free, the owner exchanges instead of storing.)
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

  std::atomic<uint64_t> inside{0};   // 0: between nodes; else the number of the node it is in, from 1
  std::atomic<uint64_t> look_at{1};  // it calls look_up() after this many nodes; 0: a thread wants its work
  // The nodes that the owner has not started: the stack, and the roots [root, root_end) of
  // SegmentNodes::roots. The owner uses them without a lock. While the owner is inside a node, the run's
  // mutex guards them.
  std::vector<uint32_t> stack;
  size_t root = 0;
  size_t root_end = 0;
  size_t ran = 0;  // nodes that the owner has run; used by the owner only

  SegmentRun& run;
  // Used by the registry.
  Participant* next = nullptr;
  Participant** place = nullptr;
  uint64_t seen = 0;  // `inside` at the last call of rescue()
  uint64_t left = 0;  // the value of `inside` for which all nodes have been taken
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
  /// After this returns, no other thread accesses the participant.
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
  /// Takes the nodes of each participant that is in the same node as at the previous call, and offers them to
  /// other workers. Returns whether there were any.
  bool rescue();

 private:
  SpinLock lock_;
  Participant* first_ = nullptr;
};

}  // namespace mx::detail
