#include "ndarray/kernels/parallel.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

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

}  // namespace
}  // namespace mx
