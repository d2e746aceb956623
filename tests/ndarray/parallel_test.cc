#include "ndarray/kernels/parallel.h"

#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include <cstdlib>
#include <string>

#include "engine/base/cpus.h"

namespace mx {
namespace {

// The division of work by parallel_width() must not assume a second thread where there is one processor.
TEST(ParallelDeathTest, OneProcessorIsOneThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* const text = std::getenv("MX_NUM_THREADS");
  const std::string before = text == nullptr ? "" : text;
  setenv("MX_NUM_THREADS", "1", 1);  // read by the process that runs the statement
  EXPECT_EXIT(std::_Exit(parallel_width() == 1 ? 0 : 1), ::testing::ExitedWithCode(0), "");
  if (text == nullptr)
    unsetenv("MX_NUM_THREADS");
  else
    setenv("MX_NUM_THREADS", before.c_str(), 1);
}

// The arena of the engine's workers has room for more threads than there are processors.
TEST(Parallel, ALoopGetsNoMoreThreadsThanThereAreProcessors) {
  tbb::task_arena arena(usable_cpus() + 3);
  arena.execute([] { EXPECT_LE(parallel_width(), usable_cpus()); });
}

}  // namespace
}  // namespace mx
