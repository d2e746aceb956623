// SegmentImpl: a recorded program as a graph. Internal.
//
// A recorded operation keeps its Op and its links. For replays it has a node (segment_nodes.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "engine/detail/at_replay.h"
#include "engine/detail/op.h"
#include "engine/detail/pools.h"
#include "engine/detail/segment_graph.h"
#include "engine/detail/segment_nodes.h"

namespace mx::detail {

class EngineImpl;
class SegmentGroup;
struct Hold;

class SegmentImpl : public std::enable_shared_from_this<SegmentImpl> {
 public:
  explicit SegmentImpl(EngineImpl& engine);
  ~SegmentImpl();
  SegmentImpl(const SegmentImpl&) = delete;

  /// Adds an operation to the recording. If it throws, it has freed the operation.
  void add(Op* op);
  /// Ends the recording and builds the graph from the links. `device_graph`: see RecordOptions.
  void finish(bool device_graph);
  void replay(int priority);
  /// While recording: see at_replay.h.
  void at_replay(const void* key, std::function<void()> changed);
  bool repeats(const ReplayCount& maker) const { return &maker == replays_ || counted_.contains(&maker); }
  ReplayCount* replays() const { return replays_; }
  /// The function of a replay as a graph.
  void run_graph(const RunContext& context) const;

  const EngineImpl& engine() const { return engine_; }
  bool engine_gone() const { return memory_->engine_gone.load(std::memory_order_acquire); }
  size_t operations() const { return ops_.size(); }
  Op* operation(uint32_t index) const { return ops_[index]; }
  size_t edges() const { return nodes_.edges.size(); }

 private:
  friend class SegmentGraph;
  friend class SegmentGroup;
  friend class SegmentRun;
  void build_nodes();
  void count_changes() const;
  bool replay_as_graph(int priority);  // returns false if that is not possible

  EngineImpl& engine_;
  const uint32_t engine_id_;
  const std::shared_ptr<OpPool> memory_;  // the memory of ops_, which may outlive the engine
  std::vector<Op*> ops_;                  // in program order
  Var own_;                               // written by every replay, so that two replays never overlap
  std::vector<Link> pinned_;              // while recording: the links of all operations
  std::vector<Link> outside_;             // all variables of the operations, and own_
  Hold* hold_ = nullptr;                  // of a plain segment; owned by the engine
  SegmentNodes nodes_;
  std::unique_ptr<SegmentGroup> group_;  // unless plain_
  bool plain_ = true;  // only synchronous operations of the CPU's compute lane, without priorities
  bool finished_ = false;
  ReplayCount* const replays_ = new ReplayCount;  // shared with the memory that the segment makes
  std::unordered_set<const void*> counted_;       // while recording: the keys of at_replay()
  std::vector<std::function<void()>> changed_;    // called by every replay
  std::unique_ptr<SegmentGraph> graph_;           // null unless all operations are of one accelerator
};

}  // namespace mx::detail
