// Segment: a recorded piece of program that replays with precomputed dependencies.
//
//   Segment s = engine.record([&] { step(); });   // records what step() pushes, runs nothing
//   for (...) s.replay();                         // each replay is one operation to the engine
//
// A segment pins its variables: deleting one takes effect after the segment has been destroyed. The segment
// keeps its operations' functions and calls each once per replay, so they must be callable repeatedly. To
// other operations a replay reads, writes and updates the union of what its operations do; inside the replay
// the operations take effect in the order of recording. If one of them fails, the replay fails: all that it
// writes is poisoned with that root cause (docs/engine.md).
//
// Graphs. A segment replays as a graph of a device if all its operations are synchronous and on one
// accelerator that has graphs (a GPU, a virtual device), except in mode naive. A replay is then one operation
// on one stream:
//   - The first replay calls the functions, one after another on its stream. The second one calls them again,
//     with a stream that captures what they enqueue. Later ones repeat the captured work. What the functions
//     do on the host does not happen again. RecordOptions{.device_graph = false} records a segment that calls
//     its functions in each replay.
//   - The functions may enqueue, copy, and allocate and free on their stream. Memory that they allocate is
//     the graph's (GraphBuilder in device.h). Other memory must live as long as the segment is replayed.
//   - If a function does anything else with its stream (waits, records, synchronises), that call throws
//     InvalidState. The segment then replays without a graph, that replay included, and a warning gives the
//     reason. If a function throws anything else, the replay fails, and the next replay captures again.
//   - Priorities of the recorded operations mean nothing inside the graph. An error of one node
//     poisons everything that the replay writes.
//
// Thread-safety: any thread may call replay(); replays of one segment run one after another. A Segment may be
// destroyed while replays are pending: they keep what they need.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/var.h"

namespace mx {

namespace detail {
class SegmentImpl;
}

class Segment {
 public:
  Segment() = default;
  explicit Segment(std::shared_ptr<detail::SegmentImpl> impl) : impl_(std::move(impl)) {}

  /// Queues one execution. Throws InvalidState for an empty (default) segment, after shutdown, and if the
  /// engine has been destroyed.
  void replay(int priority = 0);

  /// Number of recorded operations, and of dependency edges between them; several dependencies between the
  /// same two operations count as one edge.
  size_t operations() const;
  size_t edges() const;

  explicit operator bool() const { return impl_ != nullptr; }

 private:
  std::shared_ptr<detail::SegmentImpl> impl_;
};

}  // namespace mx
