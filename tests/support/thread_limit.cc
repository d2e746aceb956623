#include "tests/support/thread_limit.h"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

namespace mx::test {

void with_threads(int threads, const std::function<void()>& f) {
  tbb::global_control limit(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads));
  tbb::task_arena arena(threads);
  arena.execute(f);
}

}  // namespace mx::test
