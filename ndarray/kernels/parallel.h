// parallel_for: a loop inside one operation, shared among oneTBB's threads.
//
// The pieces depend on `n` and `grain` alone, never on the number of threads, so that partial results that
// are combined in the order of the pieces repeat bit for bit. The loop is isolated: while it waits, the
// thread takes no other operation of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace mx {

namespace detail {
using LoopBody = void (*)(const void* body, int64_t begin, int64_t end);
void parallel_pieces(int64_t n, int64_t grain, LoopBody call, const void* body);

/// Not inlined, so that a loop's body is compiled only once, for loops of one piece and of several.
template <class Body>
[[gnu::noinline]] void call_loop_body(const void* body, int64_t begin, int64_t end) {
  (*static_cast<const Body*>(body))(begin, end);
}
}  // namespace detail

/// Scope in which loops of this thread run in this thread alone, because the other processors have other
/// operations to run.
class SerialLoops {
 public:
  SerialLoops();
  ~SerialLoops();
  SerialLoops(const SerialLoops&) = delete;
  SerialLoops& operator=(const SerialLoops&) = delete;

 private:
  bool before_;
};

/// How many threads a loop of the calling thread can get at most, itself among them. For choosing pieces of
/// work whose results do not depend on the choice; never for anything that shows in a result.
int parallel_width();

/// Calls body(begin, end) for [0, grain), [grain, 2 * grain), ... up to n; at once for a single piece. The
/// first exception out of a piece is rethrown when all that have started have ended; which pieces still run
/// then is not defined.
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  if (n <= grain) {
    if (n > 0) detail::call_loop_body<Body>(std::addressof(body), 0, n);
    return;
  }
  detail::parallel_pieces(n, grain, detail::call_loop_body<Body>, std::addressof(body));
}

}  // namespace mx
