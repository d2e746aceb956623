#include "engine/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mx {
namespace {

using Lines = std::vector<std::pair<LogLevel, std::string>>;

/// Collects the logged lines during its lifetime. The log serialises the calls of a sink.
class Capture {
 public:
  Capture()
      : before_(set_log_sink(
            [this](LogLevel level, const std::string& line) { lines_.emplace_back(level, line); })) {}
  ~Capture() { set_log_sink(before_); }
  const Lines& lines() const { return lines_; }

 private:
  Lines lines_;
  LogSink before_;
};

TEST(Log, GivesTheSinkTheLevelAndTheJoinedParts) {
  Capture capture;
  log(LogLevel::warning, "the pool is at ", 93, "% of ", 1.5, " GB");
  log(LogLevel::error, "lost");
  EXPECT_EQ(capture.lines(),
            (Lines{{LogLevel::warning, "the pool is at 93% of 1.5 GB"}, {LogLevel::error, "lost"}}));
}

TEST(Log, DefaultLevelPassesWarningsAndErrorsOnly) {
  if (std::getenv("MX_LOG") != nullptr) GTEST_SKIP() << "MX_LOG is set";
  EXPECT_TRUE(log_enabled(LogLevel::error));
  EXPECT_TRUE(log_enabled(LogLevel::warning));
  EXPECT_FALSE(log_enabled(LogLevel::info));
  EXPECT_FALSE(log_enabled(LogLevel::debug));
  Capture capture;
  log(LogLevel::info, "quiet");
  EXPECT_TRUE(capture.lines().empty());
}

TEST(Log, ReturnsTheSinkBeforeAndRestoresIt) {
  Capture outer;
  {
    Capture inner;
    log(LogLevel::error, "to the inner");
    EXPECT_EQ(inner.lines().size(), 1u);
  }
  log(LogLevel::error, "to the outer");
  EXPECT_EQ(outer.lines(), (Lines{{LogLevel::error, "to the outer"}}));
}

TEST(Log, WithoutASinkWritesOneLineToStandardError) {
  const LogSink before = set_log_sink({});
  ::testing::internal::CaptureStderr();
  log(LogLevel::error, "code ", 7);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "mx: error: code 7\n");
  set_log_sink(before);
}

TEST(Log, KeepsEveryLineOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  Capture capture;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) log(LogLevel::error, t, ":", i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(capture.lines().size(), static_cast<size_t>(kThreads * kLines));
  for (int t = 0; t < kThreads; ++t) {
    const std::string prefix = std::to_string(t) + ":";
    int next = 0;
    for (const auto& [level, line] : capture.lines()) {
      if (!line.starts_with(prefix)) continue;
      EXPECT_EQ(line, prefix + std::to_string(next++));
    }
    EXPECT_EQ(next, kLines);
  }
}

// The level is read once per process, so this test runs in its own process.
TEST(LogDeathTest, LevelComesFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_EXIT(
      {
        setenv("MX_LOG", "error", 1);
        const bool ok = log_enabled(LogLevel::error) && !log_enabled(LogLevel::warning);
        std::exit(ok ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  ASSERT_EXIT(
      {
        setenv("MX_LOG", "debug", 1);
        log(LogLevel::debug, "seen");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "mx: debug: seen");
}

}  // namespace
}  // namespace mx
