// SegmentImpl: a recorded program as a graph. SegmentRun: one replay of it. Internal.
//
// A recorded operation stays the Op it was, with its function in place. Its links are needed no more, so the
// first two of them, which share the cache line of the type and of the function's first bytes, become the
// node: a replay touches one line per operation, its successors' lines and the edge list.
//
// A replay starts on one worker and stays there, without atomics, unless another worker looks for work; then
// it shares. A node with one predecessor never needs a counter. The last participant to leave ends it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/detail/op.h"

namespace mx::detail {

class EngineImpl;

/// What the links of a recorded operation become. Overlays Op::link_a.
struct Node {
  Op** successors;
  uint32_t successor_count;
  uint32_t predecessors;
  std::atomic<uint32_t> waiting;
  uint32_t index;
  uint64_t unused;
};
static_assert(sizeof(Node) == 2 * sizeof(Link));

inline Node& node_of(Op* op) { return *std::launder(reinterpret_cast<Node*>(op->link_a)); }

class SegmentImpl : public std::enable_shared_from_this<SegmentImpl> {
 public:
  explicit SegmentImpl(EngineImpl& engine);
  ~SegmentImpl();
  SegmentImpl(const SegmentImpl&) = delete;

  /// Takes an operation while recording. Never fails after the operation was taken.
  void add(Op* op);
  /// Ends the recording: turns links into edges.
  void finish();
  void replay(int priority);

  size_t operations() const { return ops_.size(); }
  size_t edges() const { return edges_.size(); }

 private:
  friend class SegmentRun;
  void replay_one_by_one(int priority);

  EngineImpl& engine_;
  const uint32_t engine_id_;
  std::vector<Op*> ops_;                 // in program order
  std::vector<std::vector<Link>> links_;  // of each, until finish(); kept if replayed one by one
  Var own_;  // updated by every replay, so that two of them never overlap
  std::vector<Link> outside_;            // the union of what the operations touch, and own_
  std::vector<Op*> edges_;
  std::vector<Op*> roots_;
  bool plain_ = true;  // only synchronous operations of the CPU's compute lane
  bool finished_ = false;
};

}  // namespace mx::detail
