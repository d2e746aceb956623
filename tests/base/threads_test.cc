// The number of threads that can be started, on a machine that does not limit it.
#include "engine/base/threads.h"

#include <gtest/gtest.h>

#include <atomic>

namespace mx {
namespace {

TEST(Threads, AsManyAsAreWantedCanBeStarted) {
  EXPECT_EQ(4, startable_threads(4));
  EXPECT_EQ(4, startable_threads(4));
  EXPECT_EQ(2, startable_threads(2));
  EXPECT_EQ(0, startable_threads(0));
}

TEST(Threads, OneThatIsStartedRunsItsFunction) {
  std::atomic<bool> ran{false};
  start_thread("test", [&] { ran = true; }).join();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace mx
