// DeviceLanes: the devices and lanes that operations are pushed to. Internal.
//
// A lane is a pair (context, kind of stream). An operation refers to it by its index, Op::device. Lane 0 is
// the CPU's compute lane. Its ready operations are in EngineImpl::ready_, those of the CPU's communication
// lanes in EngineImpl::comm_. The ready operations of an accelerator are in their lane until a worker issues
// them. Only one worker at a time issues for a device, so that each stream gets its operations in the order
// of its clock.
//
// Locks: lanes are added under both the mutex and the engine's lock, and are never changed or removed. So
// either lock is enough to read all of them, and find() and operator[] need none. All other members are
// called under the engine's lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/detail/lock.h"
#include "engine/detail/op.h"
#include "engine/detail/ready_queue.h"
#include "engine/device/device.h"

namespace mx::detail {

// Op::device of operations that run no function: delete_var(), recover(), and the replay of a group.
inline constexpr uint8_t kInternalLane = 255;

struct Lane {
  Context context;
  StreamKind kind = StreamKind::compute;
  bool accelerator = false;
  int issuer = -1;   // accelerators only: index into issuing_, the same for all lanes of one device
  ReadyQueue ready;  // accelerators only; under the engine's lock. The other members never change.
};

class DeviceLanes {
 public:
  DeviceLanes();

  // ---- any thread, no lock ----
  /// Returns the index of that lane, or 0, the index of the CPU's compute lane, if it does not exist yet.
  uint8_t find(Context context, StreamKind kind) const;
  /// Returns the index of that lane, and adds the lane if it does not exist yet. Takes the engine's lock.
  /// Throws InvalidArgument if there are too many lanes, and bad_alloc.
  uint8_t find_or_add(Context context, StreamKind kind, EngineLock& engine_lock);
  const Lane& operator[](size_t index) const { return *lanes_[index]; }
  /// Returns whether a worker issues an operation of the lane's device now. That worker looks for the next
  /// one afterwards.
  bool is_attended(const Lane& lane) const {
    return lane.accelerator && issuing_[issuer_of(lane)].load(std::memory_order_seq_cst);
  }

  // ---- under the engine's lock ----
  /// Adds a ready operation of an accelerator to its lane. `released`: others had to end before it.
  void push(Op* op, bool released) {
    ReadyQueue& queue = lanes_[op->device]->ready;
    released ? queue.push_released(op) : queue.push(op);
    ++ready_;
  }
  /// The number of ready operations in all lanes.
  size_t ready() const { return ready_; }
  /// The number of those whose device nobody issues for.
  size_t issuable() const {
    if (ready_ == 0) return 0;
    size_t sum = 0;
    for (const auto& lane : lanes_)
      if (lane->accelerator && !is_attended(*lane)) sum += lane->ready.size();
    return sum;
  }
  /// Returns true if a worker could issue one of them now.
  bool can_issue() const {
    return ready_ > 0 && std::any_of(lanes_.begin(), lanes_.end(), [this](const auto& lane) {
             return lane->accelerator && !lane->ready.empty() && !is_attended(*lane);
           });
  }
  /// Returns the lane that issues next, or null. The caller must take one operation out of Lane::ready, and
  /// is the only issuer of that device until end_issue().
  Lane* begin_issue();
  void end_issue(const Lane& lane) { issuing_[issuer_of(lane)].store(false, std::memory_order_seq_cst); }
  /// Puts an operation that has not begun back to the front of its lane. Called instead of end_issue().
  void give_back(Lane& lane, Op* op) {
    lane.ready.push_front(op);
    ++ready_;
    end_issue(lane);
  }
  template <class F>
  void for_each_ready(const F& f) {
    for (auto& lane : lanes_) lane->ready.for_each(f);
  }

 private:
  static size_t issuer_of(const Lane& lane) { return static_cast<size_t>(lane.issuer); }

  std::mutex mutex_;                          // held to add a lane
  std::vector<std::unique_ptr<Lane>> lanes_;  // reserved for the most lanes possible, so it never reallocates
  std::atomic<size_t> count_{1};              // the number of lanes that any thread may read without a lock
  // Per issuer: true while a worker issues. Written under the engine's lock.
  std::array<std::atomic<bool>, kInternalLane + 1> issuing_{};
  // ---- under the engine's lock ----
  int issuers_ = 0;   // entries of issuing_ that are in use
  size_t ready_ = 0;  // the sum of the sizes of Lane::ready
  size_t turn_ = 0;   // where begin_issue() begins its search, so that lanes take turns
};

}  // namespace mx::detail
