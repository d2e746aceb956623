// How many threads can be started, where there is no lack of them.
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
