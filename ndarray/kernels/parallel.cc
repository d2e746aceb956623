#include "ndarray/kernels/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "engine/base/annotations.h"
#include "engine/base/cpus.h"

namespace mx {

int parallel_width() {
  const size_t allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<int>(std::min(allowed, static_cast<size_t>(tbb::this_task_arena::max_concurrency())));
}

namespace detail {

namespace {

// The edges that oneTBB makes, also where a body throws: from before the loop to each piece, and back.
class Handover {
 public:
  explicit Handover(const void* edge) : edge_(edge) { MX_TSAN_RELEASE(edge_); }
  ~Handover() { MX_TSAN_ACQUIRE(edge_); }
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

 private:
  const void* edge_;
};
class Piece {
 public:
  explicit Piece(const void* edge) : edge_(edge) { MX_TSAN_ACQUIRE(edge_); }
  ~Piece() { MX_TSAN_RELEASE(edge_); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

 private:
  const void* edge_;
};

/// On the only processor there is nobody to share with, and oneTBB's part of it costs as much as a small
/// loop.
bool alone() {
  static const bool result = usable_cpus() == 1;
  return result;
}

}  // namespace

void parallel_pieces(int64_t n, int64_t grain, LoopBody call, const void* body) {
  const int64_t pieces = (n + grain - 1) / grain;
  if (alone()) {
    for (int64_t i = 0; i < pieces; ++i) call(body, i * grain, std::min((i + 1) * grain, n));
    return;
  }
  const void* edge = &pieces;
  const Handover handover(edge);
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, pieces, 1),
        [&](const tbb::blocked_range<int64_t>& range) {
          const Piece piece(edge);
          for (int64_t i = range.begin(); i < range.end(); ++i)
            call(body, i * grain, std::min((i + 1) * grain, n));
        },
        tbb::simple_partitioner());
  });
}

}  // namespace detail
}  // namespace mx
