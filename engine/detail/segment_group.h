// SegmentGroup: replays of a segment whose operations are not all plain. Internal.
//
// From outside a replay is one operation, R: it is queued at the union of what the segment touches and holds
// it until all its nodes have ended, so that nobody else's operations come between them. R itself runs
// nothing. When it is granted, its nodes go through the engine's ready queues, lanes and streams as
// operations of their own, each as soon as the nodes before it in the precomputed graph have ended.
//
// A node is a *shell*: an Op with copies of the recorded links, made once per segment (replays of one segment
// never overlap) and never queued at the variables. Its type calls the recorded function where it lies. In a
// shell's links, Link::granted() means: the value found comes from outside, as no earlier node writes it.
//
// How a node ends: on the CPU when its function has returned (and its token has been used), on an accelerator
// when it is enqueued. R ends with the last of them; what devices still do then is remembered per variable,
// as usual. The first failure of a node is the replay's: nodes that have not started are skipped, and R
// fails. That holds for failures that a device reports until R ends. Later ones poison what was made from
// them, as for any operation that is enqueued.
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

/// What lies in the closure of a shell.
struct NodeClosure {
  Failure* failure;  // Op::failure_of_run
  SegmentGroup* group;
  Op* recorded;
  uint32_t index;
};
inline NodeClosure& node_of(Op* op) { return *static_cast<NodeClosure*>(op->closure()); }

/// What lies in the closure of R.
struct ReplayClosure {
  enum class End : uint8_t {
    flagged,    // it never started, as its flags say
    done,       //
    failed,     // a node did
    counted,    // likewise, on a device, where retired() counts it
    inherited,  // something that the segment reads turned out to be poisoned
    cancelled,
  };
  Failure* failure = nullptr;     // Op::failure_of_run; the first of a node
  SegmentGroup* group = nullptr;  // while nodes run
  std::shared_ptr<SegmentImpl> segment;
  uint32_t outstanding = 0;  // nodes given to the queues that have not ended
  End end = End::flagged;
  bool ran = false;      // the function of some node was called
  bool skipped = false;  // some node was not, or will not be
  bool cancelled = false;
};
static_assert(sizeof(NodeClosure) <= kClosureBytes && sizeof(ReplayClosure) <= kClosureBytes);
inline ReplayClosure& replay_of(Op* op) { return *static_cast<ReplayClosure*>(op->closure()); }

class SegmentGroup {
 public:
  /// Of a segment whose graph is built. Throws OutOfMemory. No lock.
  SegmentGroup(EngineImpl& engine, SegmentImpl& segment);
  SegmentGroup(const SegmentGroup&) = delete;
  /// The shells go back to the engine, if it still lives, in front of `chain`. No lock.
  void give_back(Op*& chain) noexcept;

  /// Pushes a replay; while recording, the operations one by one instead. No lock.
  void replay(const std::shared_ptr<SegmentImpl>& segment, int priority);

  /// The replay that runs.
  Op* replay() const { return replay_; }
  ReplayRef replay_ref() const;
  /// Nodes that have not started are to be skipped: cancelled, or a device has failed. Any thread.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  /// Does the segment touch a variable with this mark (wait.cc)?
  bool touches_marked(uint32_t walk);

  void start(Op* replay);
  void ended(Op* node);
  static void fail(Op* replay, Failure* failure, ReplayClosure::End end);
  /// Every replay that runs, from `first` on.
  static void cancel_all(SegmentGroup* first);
  /// A replay takes its place in the order of the program: so do its nodes.
  static void linked(Profiler& profiler, const Op* replay);

 private:
  void make_shell(uint32_t index, Op* recorded);
  void give(uint32_t index);
  void finish();

  EngineImpl& engine_;
  SegmentImpl& segment_;
  std::vector<Op*> shells_;   // by index of the node
  std::vector<bool> doomed_;  // nodes to be skipped: one before them failed or was skipped
  Op* replay_ = nullptr;
  std::atomic<bool> stopped_{false};
  uint32_t walk_ = 0;  // of the latest touches_marked(), and its answer
  bool marked_ = false;
  SegmentGroup* next_ = nullptr;  // of EngineImpl::groups_
  SegmentGroup* previous_ = nullptr;
};

}  // namespace mx::detail
