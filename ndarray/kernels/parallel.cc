#include "ndarray/kernels/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "engine/base/annotations.h"

namespace mx {

int parallel_width() {
  const size_t allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<int>(std::min(allowed, static_cast<size_t>(tbb::this_task_arena::max_concurrency())));
}

namespace detail {

void parallel_pieces(int64_t n, int64_t grain, LoopBody call, const void* body) {
  const int64_t pieces = (n + grain - 1) / grain;
  const void* edge = &pieces;
  MX_TSAN_RELEASE(edge);  // the edges that oneTBB makes: from here to each piece, and back
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, pieces, 1),
        [&](const tbb::blocked_range<int64_t>& range) {
          MX_TSAN_ACQUIRE(edge);
          for (int64_t i = range.begin(); i < range.end(); ++i)
            call(body, i * grain, std::min((i + 1) * grain, n));
          MX_TSAN_RELEASE(edge);
        },
        tbb::simple_partitioner());
  });
  MX_TSAN_ACQUIRE(edge);
}

}  // namespace detail
}  // namespace mx
