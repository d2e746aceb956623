// SegmentNodes: the graph of a segment, and the counters that tell which nodes of a replay may run. Internal.
//
// Both kinds of replay use it: SegmentRun, which runs plain operations itself, and SegmentGroup, which gives
// nodes to the engine's queues. Each begins with the roots, and calls NodeSource::ended() for every node that
// has ended to get the nodes that may run next.
//
// A node has 32 bytes: the function to call, the closure itself if it is small and may be copied, and the
// place where its successors begin. Nodes are in program order. The counters of predecessors are in an array
// of their own, four bytes each. So a replay reads memory forwards where the program does, and a million
// operations need 36 MB instead of 160. The speed of a replay is bound by the cache lines that it reads.
//
// Locks: the graph is built once, then only the counters change. Replays of one segment never overlap. Within
// one replay, only one thread at a time may call ended() without kShared: the only participant of a run, or
// the holder of the engine's lock.
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
  uint32_t successors;  // where they begin in the edges; they end where the next node's begin
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

/// The addresses of the graph's arrays, which loops of a few nanoseconds per node keep in registers.
struct NodeSource {
  Node* nodes;
  const uint32_t* edges;
  std::atomic<uint32_t>* counters;

  /// Called when the node with these edges has ended. Calls ready(successor) for each successor that waits
  /// for no other node. With kShared several threads may call this at once, and the thread that runs a
  /// successor sees everything that the threads of its predecessors did before their calls.
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
  std::vector<Node> nodes;      // one per operation, and one for the end of the last node's successors
  std::vector<uint32_t> edges;  // the successors of each node, in program order
  std::vector<uint32_t> roots;  // nodes without predecessors
  // For nodes with several predecessors: how many of these have not ended; between replays, their number.
  std::unique_ptr<std::atomic<uint32_t>[]> waiting;

  NodeSource source() { return {nodes.data(), edges.data(), waiting.get()}; }
  template <class F>
  void for_each_successor(uint32_t index, const F& f) const {
    for (uint32_t i = nodes[index].successors; i < nodes[index + 1].successors; ++i) f(edges[i]);
  }
};

}  // namespace mx::detail
