// SharedLoop: every piece runs exactly once, on any thread.
#include "engine/base/shared_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/spin.h"

namespace mx {
namespace {

using Body = std::function<void(int64_t begin, int64_t end)>;

void call(const void* body, int64_t begin, int64_t end) { (*static_cast<const Body*>(body))(begin, end); }

bool never() { return false; }

/// Threads that poll for offered loops all the time.
class Helpers {
 public:
  explicit Helpers(int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        const SharedLoop::Look look(SharedLoop::Look::all);
        ++ready_;
        while (!end_) {
          if (SharedLoop::offered()) SharedLoop::help(SharedLoop::Look::all, [] { return never(); });
          std::this_thread::yield();
        }
      });
    while (ready_ < count) std::this_thread::yield();
  }
  ~Helpers() {
    end_ = true;
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<int> ready_{0};
  std::atomic<bool> end_{false};
  std::vector<std::thread> threads_;
};

/// Runs a loop of n elements; checks the bounds of the pieces and that each element is run once.
void expect_each_once(int64_t n, int64_t grain, int threads) {
  std::vector<std::atomic<int>> times(static_cast<size_t>(n));
  const Body body = [&](int64_t begin, int64_t end) {
    EXPECT_EQ(0, begin % grain);
    EXPECT_EQ(std::min(begin + grain, n), end);
    for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
  };
  SharedLoop loop(n, grain, call, &body, threads);
  EXPECT_TRUE(loop.run(SharedLoop::kForever));
  loop.finish();
  for (const std::atomic<int>& t : times) ASSERT_EQ(1, t) << n << " by " << grain;
}

TEST(SharedLoop, RunsEveryPieceOnce) {
  for (int helpers : {0, 1, 3}) {
    const Helpers others(helpers);
    for (int threads : {1, 2, 3, 16, 40})
      for (int64_t n : {1, 2, 3, 7, 16, 17, 64, 1000})
        for (int64_t grain : {1, 3, 16, 1000}) expect_each_once(n, grain, threads);
  }
}

TEST(SharedLoop, SeveralAtOnce) {
  const Helpers others(2);
  std::vector<std::thread> owners;
  for (int t = 0; t < 20; ++t)  // more owners than slots
    owners.emplace_back([t] {
      for (int i = 0; i < 50; ++i) expect_each_once(10 + t * 7 + i, 1 + i % 4, 2 + t % 3);
    });
  for (std::thread& t : owners) t.join();
  EXPECT_FALSE(SharedLoop::offered());
}

// Two pieces that wait for each other, so the loop needs two threads.
TEST(SharedLoop, AThreadThatLooksTakesPart) {
  const Helpers other(1);
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> arrived{0};
    const Body body = [&](int64_t, int64_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    };
    SharedLoop loop(2, 1, call, &body, 2);
    EXPECT_TRUE(loop.attended(SharedLoop::kForever));
    loop.run(SharedLoop::kForever);
    loop.finish();
    EXPECT_EQ(2, arrived);
  }
}

TEST(SharedLoop, NoMoreThreadsTakePartThanAreAskedFor) {
  const Helpers others(4);
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> inside{0}, most{0};
    const Body body = [&](int64_t, int64_t) {
      const int now = ++inside;
      int before = most;
      while (now > before && !most.compare_exchange_weak(before, now)) {
      }
      std::this_thread::yield();
      --inside;
    };
    SharedLoop loop(50, 1, call, &body, 2);
    loop.run(SharedLoop::kForever);
    loop.finish();
    EXPECT_LE(most, 2);
  }
}

TEST(SharedLoop, WithoutHelpTheOwnerLosesPatienceOnce) {
  std::atomic<int> pieces{0};
  const Body body = [&](int64_t, int64_t) { ++pieces; };
  SharedLoop loop(100, 1, call, &body, 2);
  EXPECT_FALSE(loop.attended(0));
  EXPECT_FALSE(loop.run(0));
  EXPECT_EQ(1, pieces);
  std::thread called([&] { loop.join(1); });
  loop.join(0);
  called.join();
  loop.finish();
  EXPECT_EQ(100, pieces);
}

TEST(SharedLoop, WhoMustLeaveLeavesBetweenPiecesAndTheRestIsRun) {
  std::atomic<bool> end{false};
  std::atomic<int> helped{0};
  std::thread helper([&] {
    while (!end) {
      if (SharedLoop::offered()) helped += SharedLoop::help(SharedLoop::Look::all, [] { return true; });
    }
  });
  while (helped == 0) expect_each_once(1000, 1, 2);
  for (int i = 0; i < 200; ++i) expect_each_once(100, 1, 2);
  end = true;
  helper.join();
}

TEST(SharedLoop, TheFirstExceptionIsRethrownAndTheRestIsLeft) {
  const Helpers other(1);
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> inside{0};
    const Body body = [&](int64_t begin, int64_t) {
      ++inside;
      if (begin == i) throw std::runtime_error("at " + std::to_string(i));
      --inside;
    };
    SharedLoop loop(100, 1, call, &body, 2);
    loop.run(SharedLoop::kForever);
    try {
      loop.finish();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ("at " + std::to_string(i), e.what());
    }
    EXPECT_EQ(1, inside);  // no thread is in a piece any more, except the one that threw
  }
}

TEST(SharedLoop, OfSeveralExceptionsThatOfTheFirstPieceIsRethrown) {
  const Helpers others(2);
  for (int i = 0; i < 200; ++i) {
    const int first = i % 97;
    const Body body = [&](int64_t begin, int64_t) {
      if (begin >= first && (begin - first) % 3 == 0) throw std::runtime_error("at " + std::to_string(begin));
    };
    SharedLoop loop(100, 1, call, &body, 3);
    loop.run(SharedLoop::kForever);
    try {
      loop.finish();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_EQ("at " + std::to_string(first), e.what());
    }
  }
}

TEST(SharedLoop, OfOneInsideAnother) {
  const Helpers others(2);
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> times{0};
    const Body inner = [&](int64_t begin, int64_t end) { times += static_cast<int>(end - begin); };
    const Body outer = [&](int64_t, int64_t) {
      SharedLoop loop(64, 4, call, &inner, 3);
      loop.run(SharedLoop::kForever);
      loop.finish();
    };
    SharedLoop loop(8, 1, call, &outer, 3);
    loop.run(SharedLoop::kForever);
    loop.finish();
    EXPECT_EQ(8 * 64, times);
  }
}

// A thread that waits for something else helps only with loops of short pieces.
TEST(SharedLoop, WhoIsInAHurryHelpsOnlyWherePiecesAreShort) {
  const auto run_pieces_of = [](double us, int64_t grain) {
    const Body body = [us](int64_t, int64_t) { test::spin_for(us); };
    SharedLoop loop(4 * grain, grain, call, &body, 2);
    const SharedLoop::Look look(SharedLoop::Look::brief);
    const bool seen = loop.attended(0);
    bool helped = false;
    std::thread helper([&] { helped = SharedLoop::help(SharedLoop::Look::brief, [] { return false; }); });
    helper.join();
    loop.run(SharedLoop::kForever);
    loop.finish();
    EXPECT_EQ(seen, helped);
    return helped;
  };
  // Replaces an earlier measurement, which may be of another loop with the same hash.
  run_pieces_of(500, 12345);
  EXPECT_FALSE(run_pieces_of(500, 12345));
  // On a busy machine a short piece may take long, so try several times.
  bool helped = false;
  for (int i = 0; i < 1000 && !helped; ++i) helped = run_pieces_of(0, 54321);
  EXPECT_TRUE(helped);
}

}  // namespace
}  // namespace mx
