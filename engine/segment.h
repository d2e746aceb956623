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

  /// Queues one execution. Throws InvalidState for an empty (default) segment or after shutdown.
  void replay(int priority = 0);

  /// Number of recorded operations, and of dependency edges after transitive reduction of direct duplicates.
  size_t operations() const;
  size_t edges() const;

  explicit operator bool() const { return impl_ != nullptr; }

 private:
  std::shared_ptr<detail::SegmentImpl> impl_;
};

}  // namespace mx
