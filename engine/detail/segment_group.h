// SegmentGroup: replays of a segment whose operations are not all plain. Internal.
//
// To other operations a replay is one operation, R. It is queued at all variables that the segment uses and
// holds them until all its nodes have ended, so that no other operation runs between two nodes. R itself runs
// no function. When all its links are granted, its nodes go through the engine's ready queues, lanes and
// streams as separate operations, each as soon as the nodes before it in the precomputed graph have ended.
//
// A node is a *shell*: an Op with copies of the recorded links, never queued at the variables. Shells are
// made once per segment, since replays of one segment never overlap. The shell's type calls the recorded
// function in its place in the recorded Op. In a shell's links, Link::granted() means that no earlier node
// writes the variable, so that its value comes from outside the replay.
//
// A node of the CPU ends when its function has returned and its token, if it has one, has been used. A node
// of an accelerator ends when it is enqueued. R ends with the last node. Work of devices that is then still
// in flight is recorded per variable, as for any operation.
//
// The first failure of a node fails the replay. The nodes behind that node are skipped, and R fails. If a
// device has failed, all nodes that have not started are skipped. This holds for failures that devices report
// before R ends. Later failures poison what was made from the failed work, as for any enqueued operation.
//
// All members are called under the engine's lock unless they say otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/detail/op.h"
#include "engine/detail/stream_order_state.h"

namespace mx::detail {

class EngineImpl;
class Profiler;
class SegmentGroup;
class SegmentImpl;

/// The contents of a shell's closure.
struct NodeClosure {
  Failure* failure;  // Op::failure_of_run
  SegmentGroup* group;
  Op* recorded;
  uint32_t index;
};
inline NodeClosure& node_of(Op* op) { return *static_cast<NodeClosure*>(op->closure()); }

/// The contents of the closure of R.
struct ReplayClosure {
  enum class End : uint8_t {
    flagged,    // it never started; its flags give the reason
    done,       //
    failed,     // a node failed
    counted,    // a node failed on a device; retired() counts the failure
    inherited,  // a version that the segment reads is poisoned
    cancelled,
  };
  Failure* failure = nullptr;     // Op::failure_of_run; the first failure of a node
  SegmentGroup* group = nullptr;  // while nodes run
  std::shared_ptr<SegmentImpl> segment;
  uint32_t outstanding = 0;  // nodes given to the queues that have not ended
  End end = End::flagged;
  bool ran = false;      // the function of a node was called
  bool skipped = false;  // a node was skipped
  bool cancelled = false;
};
static_assert(sizeof(NodeClosure) <= kClosureBytes && sizeof(ReplayClosure) <= kClosureBytes);
inline ReplayClosure& replay_of(Op* op) { return *static_cast<ReplayClosure*>(op->closure()); }

class SegmentGroup {
 public:
  /// Precondition: the graph of the segment is built. Throws OutOfMemory. No lock.
  SegmentGroup(EngineImpl& engine, SegmentImpl& segment);
  SegmentGroup(const SegmentGroup&) = delete;
  /// Prepends the shells to `chain`, which the caller returns to the pool. No lock.
  void give_back(Op*& chain) noexcept;

  /// Pushes a replay. While the thread records, pushes the segment's operations one by one instead. No lock.
  void replay(const std::shared_ptr<SegmentImpl>& segment, int priority);

  /// Returns the running replay.
  Op* replay() const { return replay_; }
  ReplayRef replay_ref() const;
  /// Makes nodes that have not started be skipped, after cancel() or the failure of a device. Any thread.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  /// Returns true if the segment uses a variable with this mark (wait.cc).
  bool touches_marked(uint32_t walk);

  void start(Op* replay);
  void ended(Op* node);
  static void fail(Op* replay, Failure* failure, ReplayClosure::End end);
  /// Cancels the running replays of all groups in the list that begins with `first`.
  static void cancel_all(SegmentGroup* first);
  /// Tells the profiler that a replay, and with it its nodes, has been linked.
  static void linked(Profiler& profiler, const Op* replay);

 private:
  void make_shell(uint32_t index, Op* recorded);
  void give(uint32_t index, bool released);
  void finish();

  EngineImpl& engine_;
  SegmentImpl& segment_;
  std::vector<Op*> shells_;   // by index of the node
  std::vector<bool> doomed_;  // nodes to be skipped, because a predecessor has failed or was skipped
  Op* replay_ = nullptr;
  std::atomic<bool> stopped_{false};
  uint32_t walk_ = 0;  // argument and result of the latest touches_marked()
  bool marked_ = false;
  SegmentGroup* next_ = nullptr;  // of EngineImpl::groups_
  SegmentGroup* previous_ = nullptr;
};

}  // namespace mx::detail
