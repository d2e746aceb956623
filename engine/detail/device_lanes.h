// DeviceLanes: what an engine knows of the devices and lanes that operations are pushed to. Internal.
//
// A lane is one (context, kind of stream); an operation names it by its index, Op::device. Lane 0 is the
// CPU's compute lane, which has the engine's own queue, as the CPU's communication lanes share another. The
// operations of an accelerator stand in their lane until a worker issues them: one worker per device at a
// time, so that each stream gets its operations in the order of its clock.
//
// Locks: lanes are added under both the mutex and the engine's lock, and never change or go. So either lock
// is enough to look at all of them, and find() and operator[] need none. Everything else is called under the
// engine's lock.
#pragma once

#include <algorithm>
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

inline constexpr uint8_t kInternalLane = 255;  // Op::device of what runs nothing: deletion, a group's replay

struct Lane {
  Context context;
  StreamKind kind = StreamKind::compute;
  bool accelerator = false;
  int issuer = -1;   // of an accelerator: index into issuing_, the same for all lanes of one device
  ReadyQueue ready;  // of an accelerator; the only member that changes, under the engine's lock
};

class DeviceLanes {
 public:
  DeviceLanes();

  // ---- any thread, no lock ----
  /// The index of that lane; 0, which is the CPU's compute lane, if there is none yet.
  uint8_t find(Context context, StreamKind kind) const;
  /// Likewise; adds it if there is none. Takes the engine's lock. Throws InvalidArgument (too many),
  /// bad_alloc.
  uint8_t find_or_add(Context context, StreamKind kind, EngineLock& engine_lock);
  const Lane& operator[](size_t index) const { return *lanes_[index]; }

  // ---- under the engine's lock ----
  /// An operation of an accelerator is ready.
  void push(Op* op) {
    lanes_[op->device]->ready.push(op);
    ++ready_;
  }
  /// How many are.
  size_t ready() const { return ready_; }
  /// Could somebody issue one of them now?
  bool can_issue() const {
    return ready_ > 0 && std::any_of(lanes_.begin(), lanes_.end(), [this](const auto& lane) {
             return lane->accelerator && !lane->ready.empty() && !issuing_[issuer_of(*lane)];
           });
  }
  /// The lane that is to issue next, or null. The caller takes one operation out of Lane::ready, and is the
  /// only issuer of that device until end_issue().
  Lane* begin_issue();
  void end_issue(const Lane& lane) { issuing_[issuer_of(lane)] = 0; }
  /// Instead of end_issue(): the operation has not begun, and is the next of its lane again.
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

  std::mutex mutex_;                          // who adds a lane
  std::vector<std::unique_ptr<Lane>> lanes_;  // has room for all there can be, so it never moves
  std::atomic<size_t> count_{1};              // lanes_.size(): the first so many are complete
  // ---- under the engine's lock ----
  std::vector<char> issuing_;  // per issuer: a worker is at it; has room for all, too
  size_t ready_ = 0;           // the sum of the sizes of Lane::ready
  size_t turn_ = 0;            // where begin_issue() begins to look, so that lanes take turns
};

}  // namespace mx::detail
