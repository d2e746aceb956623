// shutdown() while other threads push: what was accepted has run when it returns, and all else is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

using ShutdownRace = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, ShutdownRace, ::testing::ValuesIn(test::all_cases()), test::CaseName());

// An operation whose push stops in the middle: when its function is moved into the engine.
struct HeldPush {
  std::latch reached{1}, go_on{1};
};
struct HeldFunction {
  HeldPush* push;
  std::shared_ptr<int> owned;
  std::atomic<bool>* ran;

  HeldFunction(HeldPush* p, std::shared_ptr<int> o, std::atomic<bool>* r)
      : push(p), owned(std::move(o)), ran(r) {}
  HeldFunction(HeldFunction&& other) noexcept(false)
      : push(std::exchange(other.push, nullptr)), owned(std::move(other.owned)), ran(other.ran) {
    if (push == nullptr) return;
    push->reached.count_down();
    push->go_on.wait();
  }
  void operator()() const { *ran = true; }
};

TEST_P(ShutdownRace, APushThatItOvertakesThrowsAndNeverRuns) {
  struct Case {
    const char* name;
    PushOptions options;
  };
  const Var v = e_.new_var();
  const Case cases[] = {{"plain", {.writes = {v}, .name = "plain"}},
                        {"urgent", {.writes = {v}, .priority = 5, .name = "urgent"}},
                        {"large", {.name = "large", .bytes = 1000}},
                        {"communication", {.name = "communication", .lane = StreamKind::comm}}};
  std::vector<std::unique_ptr<HeldPush>> pushes;
  std::vector<std::thread> threads;
  const auto owned = std::make_shared<int>(1);
  std::atomic<bool> ran{false};
  for (const Case& c : cases) {
    HeldPush& push = *pushes.emplace_back(std::make_unique<HeldPush>());
    threads.emplace_back([&, c] {
      const auto text = error_of<InvalidState>([&] { e_.push(HeldFunction(&push, owned, &ran), c.options); });
      EXPECT_TRUE(contains(text, c.name) && contains(text, "shut down")) << text;
    });
  }
  for (const auto& push : pushes) push->reached.wait();
  int earlier = 0;
  e_.push([&] { earlier = 1; }, {.writes = {v}});
  e_.shutdown();
  EXPECT_EQ(1, earlier);
  for (const auto& push : pushes) push->go_on.count_down();
  for (std::thread& thread : threads) thread.join();
  e_.wait_all();
  e_.shutdown();
  EXPECT_FALSE(ran);
  EXPECT_EQ(1, owned.use_count()) << "the functions are destroyed";
  const EngineStats stats = e_.stats();
  EXPECT_EQ(1u, stats.pushed);
  EXPECT_EQ(1u, stats.completed);
  EXPECT_EQ(0u, stats.in_flight);
  EXPECT_EQ(0u, stats.bytes_in_flight);
}

// Threads push as fast as they can while two others shut the engine down.
TEST_P(ShutdownRace, EveryAcceptedPushHasRunWhenItReturns) {
  constexpr int kPushers = 3;
  std::atomic<int64_t> accepted{0}, ran{0};
  const Var v = e_.new_var();
  Segment segment = e_.record([&] { e_.push([&] { ++ran; }, {.updates = {v}}); });
  std::latch start(kPushers + 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < kPushers; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      try {
        for (int i = 0;; ++i) {
          if (t == 0) {
            segment.replay();
          } else {
            e_.push([&] { ++ran; }, {.updates = {v}, .priority = i % 8 == 0 ? 1 : 0});
          }
          ++accepted;
        }
      } catch (const InvalidState&) {
      }
    });
  }
  std::atomic<int64_t> after[2];
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      while (accepted < 1000) std::this_thread::yield();
      e_.shutdown();
      after[t] = ran.load();
    });
  }
  for (std::thread& thread : threads) thread.join();
  e_.wait_all();
  EXPECT_EQ(accepted, ran);
  EXPECT_EQ(accepted, after[0]);
  EXPECT_EQ(accepted, after[1]);
}

}  // namespace
}  // namespace mx
