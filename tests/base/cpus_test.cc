#include "engine/base/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/error.h"

namespace mx {
namespace {

/// Sets MX_NUM_THREADS (null removes it) and restores the old value at the end.
class NumThreads {
 public:
  explicit NumThreads(const char* value) {
    if (const char* text = std::getenv(kName)) before_ = text;
    set(value);
  }
  ~NumThreads() { set(before_ ? before_->c_str() : nullptr); }
  NumThreads(const NumThreads&) = delete;
  NumThreads& operator=(const NumThreads&) = delete;

 private:
  static constexpr const char* kName = "MX_NUM_THREADS";
  static void set(const char* value) { value != nullptr ? setenv(kName, value, 1) : unsetenv(kName); }
  std::optional<std::string> before_;
};

TEST(UsableCpus, IsAtLeastOneAndWithinTheAffinityMask) {
  const NumThreads none(nullptr);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), CPU_COUNT(&mask));
}

TEST(UsableCpus, FollowsTheAffinityOfTheCallingThread) {
  const NumThreads none(nullptr);
  int seen = 0;
  std::thread pinned([&seen] {  // in a separate thread, because the affinity mask ends with the thread
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(sched_getcpu(), &mask);
    if (sched_setaffinity(0, sizeof(mask), &mask) == 0) seen = usable_cpus();
  });
  pinned.join();
  if (seen == 0) GTEST_SKIP() << "setting the affinity is not allowed here";
  EXPECT_EQ(seen, 1);
}

TEST(UsableCpus, TheVariableOverridesWhatTheMachineHas) {
  for (const int n : {1, 3, 4096}) {
    const NumThreads set(std::to_string(n).c_str());
    EXPECT_EQ(usable_cpus(), n);
  }
}

TEST(UsableCpus, AnEmptyVariableCountsAsUnset) {
  int unset = 0;
  {
    const NumThreads none(nullptr);
    unset = usable_cpus();
  }
  const NumThreads empty("");
  EXPECT_EQ(usable_cpus(), unset);
}

TEST(UsableCpus, AnUnusableVariableIsAnErrorThatNamesItAndItsValue) {
  for (const char* bad : {"0", "-2", "four", "2x", "4097", "1.5", "99999999999999999999"}) {
    const NumThreads set(bad);
    try {
      usable_cpus();
      ADD_FAILURE() << "accepted '" << bad << "'";
    } catch (const InvalidArgument& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("MX_NUM_THREADS"), std::string::npos) << text;
      EXPECT_NE(text.find(std::string("'") + bad + "'"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace mx
