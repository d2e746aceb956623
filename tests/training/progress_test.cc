// Progress bars, on a terminal and in a file.
#include "nn/training/progress_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace mx::training {
namespace {

using test::contains;

/// A file in memory.
class Output {
 public:
  Output() : file_(open_memstream(&data_, &size_)) {}
  ~Output() {
    std::fclose(file_);
    std::free(data_);
  }
  Output(const Output&) = delete;
  std::FILE* file() const { return file_; }
  std::string text() {
    std::fflush(file_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

TEST(ProgressBar, InAFileIsALineForEachTenth) {
  Output out;
  {
    ProgressBar bar(1000, {.text = "epoch 1", .out = out.file(), .width = 10});  // a file is no terminal
    for (int i = 0; i < 1000; ++i) {
      bar.note("loss", 0.5);
      bar.advance();
    }
  }
  const std::string text = out.text();
  EXPECT_EQ(10, std::count(text.begin(), text.end(), '\n'));
  EXPECT_EQ(std::string::npos, text.find('\r'));
  EXPECT_TRUE(text.starts_with("epoch 1 [#.........] 100/1000  loss 0.5  ")) << text;
  EXPECT_TRUE(contains(text, "[##########] 1000/1000  loss 0.5")) << text;
}

TEST(ProgressBar, OnATerminalIsOneLine) {
  Output out;
  ProgressBar bar(4, {.out = out.file(), .terminal = true, .interval_ms = 0, .width = 4});
  bar.advance(2);
  bar.note("loss", 1.25);
  bar.note("loss", 0.25);
  bar.advance();
  bar.finish();
  bar.finish();
  bar.advance();
  const std::string text = out.text();
  EXPECT_EQ(1, std::count(text.begin(), text.end(), '\n'));
  EXPECT_EQ(3, std::count(text.begin(), text.end(), '\r'));
  EXPECT_TRUE(text.starts_with("\r[##..] 2/4")) << text;
  EXPECT_TRUE(contains(text, "[###.] 3/4  loss 0.25")) << text;
  EXPECT_EQ(3, bar.done());
}

TEST(ProgressBar, CountsUpToTheLargestNumber) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const bool terminal : {false, true})
    for (const int64_t total : {int64_t{3}, kMost}) {
      Output out;
      ProgressBar bar(total, {.out = out.file(), .terminal = terminal, .interval_ms = 0});
      test::error_of<InvalidArgument>([&] { bar.advance(-1); });
      bar.advance(kMost);
      bar.advance(kMost);
      EXPECT_EQ(kMost, bar.done());
    }
}

TEST(ProgressBar, CountsWithoutATotalAndFromManyThreads) {
  Output out;
  ProgressBar bar(0, {.out = out.file(), .terminal = false});
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) bar.advance();
    });
  threads.clear();
  bar.finish();
  EXPECT_TRUE(out.text().starts_with("400  ")) << out.text();
  test::error_of<InvalidArgument>([&] { bar.advance(-1); });
  test::error_of<InvalidArgument>([] { ProgressBar bad(-1); });
}

}  // namespace
}  // namespace mx::training
