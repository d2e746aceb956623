// Segment: a recorded piece of program that replays with precomputed dependencies.
//
//   Segment s = engine.record([&] { step(); });   // records what step() pushes, runs nothing
//   for (...) s.replay();                         // each replay is one operation to the engine
//
// A segment pins its variables (deleting one takes effect after the segment is gone). Its operations'
// functions are kept and called once per replay, so they must be callable repeatedly. From outside, a replay
// reads, writes and updates the union of what its operations do; inside, the order is the serial one. If one
// of them fails, the replay fails: all that it writes is poisoned with that root cause (docs/engine.md).
//
// Graphs. A segment whose operations are all synchronous and on one accelerator that has graphs (a GPU, a
// virtual device) replays as a graph of that device, in one operation on one of its streams (but not in mode
// naive):
//   - The functions are called once, by the first replay when its turn comes, with a stream that captures
//     what they enqueue; what they enqueued then is what each replay does. What they do besides on the host
//     (counting, pushing, choosing a size) does not happen again. RecordOptions{.device_graph = false}
//     records a segment that calls its functions in each replay.
//   - They may enqueue, copy, and allocate and free on their stream. Memory that they allocate is the
//     graph's (GraphBuilder in device.h). Memory from elsewhere must live as long as the segment is replayed.
//   - A function that does anything else with its stream (waits, records, synchronises) throws InvalidState
//     there; then the segment replays without a graph, from the start and for good, and a warning says why.
//     A function that throws anything else fails the replay; the next one tries again.
//   - Priorities and lanes of the recorded operations mean nothing inside the graph. An error of one node
//     poisons everything that the replay writes.
//
// Thread-safety: replay() from any thread; replays of one segment run one after another. A Segment may be
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

  /// Queues one execution. Throws InvalidState for an empty (default) segment, after shutdown, and when the
  /// engine has been destroyed.
  void replay(int priority = 0);

  /// Number of recorded operations, and of dependency edges after transitive reduction of direct duplicates.
  size_t operations() const;
  size_t edges() const;

  explicit operator bool() const { return impl_ != nullptr; }

 private:
  std::shared_ptr<detail::SegmentImpl> impl_;
};

}  // namespace mx
