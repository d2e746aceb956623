#include "tests/support/parallel_loop.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include "engine/base/annotations.h"

namespace mx::test {

void parallel_loop(int n, const std::function<void(int)>& body) {
  MX_TSAN_RELEASE(&body);  // oneTBB's happens-before edges: from here to each iteration, and back
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<int>(0, n, 1),
        [&](const tbb::blocked_range<int>& range) {
          MX_TSAN_ACQUIRE(&body);
          for (int i = range.begin(); i < range.end(); ++i) body(i);
          MX_TSAN_RELEASE(&body);
        },
        tbb::simple_partitioner());
  });
  MX_TSAN_ACQUIRE(&body);
}

}  // namespace mx::test
