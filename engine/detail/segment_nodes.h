// SegmentNodes: the graph of a segment, and what a replay of it has still to run. Internal.
//
// Both ways to replay take their nodes from here: SegmentRun, which runs plain operations itself, and
// SegmentGroup, which gives nodes to the engine's queues. Each begins with the roots, and tells for every
// node that has ended which ones may run next.
//
// A node has 32 bytes, in program order: what to call, the function itself if it is small and may be copied,
// and where its successors begin. The counters of predecessors lie apart, four bytes each. So a replay reads
// memory forwards where the program does, and a million operations fit 36 MB instead of 160: replaying is
// bound by the cache lines it touches.
//
// Locks: built once, then only the counters change. Replays of one segment never overlap. Within one, ended()
// without kShared is for one thread at a time (the only participant of a run, or the engine's lock).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/run_context.h"

namespace mx::detail {

struct Node {
  static constexpr size_t kCopy = 16;
  static constexpr uint32_t kIndirect = 1u << 31;

  void (*run)(void* closure, const RunContext&, Completion*);
  uint32_t successors;  // where they begin in the edges; they end where those of the next node begin
  uint32_t
      predecessors;  // how many; with kIndirect if the closure's address is in `closure`, not the closure
  union {
    alignas(8) unsigned char closure[kCopy];
    void* closure_address;
  };

  uint32_t predecessor_count() const { return predecessors & ~kIndirect; }
  void* closure_place() { return predecessors & kIndirect ? closure_address : closure; }
};
static_assert(sizeof(Node) == 32);

/// Where a replay finds the graph: for loops of a few nanoseconds, which keep it in registers.
struct NodeSource {
  Node* nodes;
  const uint32_t* edges;
  std::atomic<uint32_t>* counters;

  /// A node with these edges has ended: calls ready(successor) for those that waited for nothing else.
  /// kShared: several threads may call this at once. The thread that runs a successor sees everything that
  /// the threads of its predecessors did before their calls.
  template <bool kShared, class F>
  void ended(uint32_t begin_edge, uint32_t end_edge, const F& ready) const {
    for (uint32_t i = begin_edge; i < end_edge; ++i) {
      const uint32_t successor = edges[i];
      const uint32_t predecessors = nodes[successor].predecessor_count();
      if (predecessors != 1) {
        std::atomic<uint32_t>& counter = counters[successor];
        uint32_t waiting = 0;
        if constexpr (kShared) {
          waiting = counter.fetch_sub(1, std::memory_order_acq_rel) - 1;
        } else {
          waiting = counter.load(std::memory_order_relaxed) - 1;
          counter.store(waiting, std::memory_order_relaxed);
        }
        if (waiting != 0) continue;
        counter.store(predecessors, std::memory_order_relaxed);  // for the next replay
      }
      ready(successor);
    }
  }
};

struct SegmentNodes {
  std::vector<Node> nodes;      // one more than operations
  std::vector<uint32_t> edges;  // the successors of each node, in program order
  std::vector<uint32_t> roots;  // nodes without predecessors
  // Predecessors not yet ended, of nodes with several; between two replays all of them.
  std::unique_ptr<std::atomic<uint32_t>[]> waiting;

  NodeSource source() { return {nodes.data(), edges.data(), waiting.get()}; }
  template <class F>
  void for_each_successor(uint32_t index, const F& f) const {
    for (uint32_t i = nodes[index].successors; i < nodes[index + 1].successors; ++i) f(edges[i]);
  }
};

}  // namespace mx::detail
