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

/// Not inlined, so that a loop's body is compiled once and serves both a single piece and many.
template <class Body>
[[gnu::noinline]] void call_loop_body(const void* body, int64_t begin, int64_t end) {
  (*static_cast<const Body*>(body))(begin, end);
}
}  // namespace detail

/// While it exists, this thread runs its loops alone. Used if the other processors are busy with other
/// operations.
class SerialLoops {
 public:
  SerialLoops();
  ~SerialLoops();
  SerialLoops(const SerialLoops&) = delete;
  SerialLoops& operator=(const SerialLoops&) = delete;

 private:
  bool before_;
};

/// Returns the largest number of threads that a loop of the calling thread can get, including itself. Use it
/// only to choose between ways of splitting work that give the same bits.
int parallel_width();

/// Calls body(begin, end) for [0, grain), [grain, 2 * grain), ... up to n; directly if there is a single
/// piece. If these were more than INT32_MAX pieces, larger ones of equal size. Returns when all pieces have
/// ended. If pieces throw, the exception of the first of them, in order, is rethrown at the end, at any
/// number of threads; it is unspecified which of the pieces behind it run.
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  if (n <= grain) {
    if (n > 0) detail::call_loop_body<Body>(std::addressof(body), 0, n);
    return;
  }
  detail::parallel_pieces(n, grain, detail::call_loop_body<Body>, std::addressof(body));
}

}  // namespace mx
