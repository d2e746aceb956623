// Bounded run-ahead: a pusher is throttled while some operation can finish, and never if none can.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/cpus.h"
#include "engine/detail/run_ahead.h"
#include "tests/support/engine_cases.h"
#include "tests/support/held.h"
#include "tests/support/spin.h"

namespace mx {
namespace {

using test::Gate;
using test::Hold;
using test::spin_for;

// Ten million operations take about three seconds on two processors; sanitizers and debug builds push fewer.
int64_t operations_to_push() {
  if (const char* text = std::getenv("MX_TEST_RUN_AHEAD_OPS")) return std::atoll(text);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(NDEBUG)
  return 300'000;
#else
  return 10'000'000;
#endif
}

class RunAhead : public ::testing::TestWithParam<int> {
 protected:
  EngineOptions options() const { return test::threaded_case(GetParam()).options; }
};
INSTANTIATE_TEST_SUITE_P(Threads, RunAhead, ::testing::Values(1, 2));

TEST_P(RunAhead, MemoryStaysFlat) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 4096;
  Engine e(limited);
  Var vars[8];
  for (Var& v : vars) v = e.new_var();
  uint64_t sum = 0;
  const auto push = [&](int64_t i) {
    e.push([&sum] { ++sum; }, {.reads = {vars[i % 7]}, .updates = {vars[7]}});
  };
  const int64_t count = operations_to_push();
  for (int64_t i = 0; i < count / 10; ++i) push(i);
  const uint64_t early = e.stats().op_pool_bytes;
  uint64_t most_in_flight = 0;
  for (int64_t i = count / 10; i < count; ++i) {
    push(i);
    if (i % 1000 == 0) most_in_flight = std::max(most_in_flight, e.stats().in_flight);
  }
  const uint64_t late = e.stats().op_pool_bytes;
  e.wait_all();
  EXPECT_EQ(static_cast<uint64_t>(count), sum);
  // A pusher checks the limit at every 64th push; the caches of free operations add to that.
  EXPECT_LE(most_in_flight, 4096u + 2 * 64);
  EXPECT_LE(late, early + (1 << 20));
  EXPECT_LE(late, uint64_t{4} << 20);
}

TEST_P(RunAhead, ManyPushersStayBelowTheLimit) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 1024;
  Engine e(limited);
  std::atomic<uint64_t> n{0}, most{0};
  std::vector<std::thread> pushers;
  for (int t = 0; t < 4; ++t) {
    pushers.emplace_back([&] {
      Var v = e.new_var();
      for (int i = 0; i < 20'000; ++i) {
        e.push([&] { ++n; }, {.updates = {v}});
        if (i % 500 == 0) most = std::max(most.load(), e.stats().in_flight);
      }
    });
  }
  for (std::thread& t : pushers) t.join();
  e.wait_all();
  EXPECT_EQ(80'000u, n.load());
  EXPECT_LE(most.load(), 1024u + 4 * 64 * 2);
}

TEST_P(RunAhead, BytesAreLimitedToo) {
  EngineOptions limited = options();
  limited.max_bytes_in_flight = 10'000;
  Engine e(limited);
  Var v = e.new_var();
  uint64_t most = 0;
  int n = 0;
  // No operation ends before the pusher has been throttled, however fast the workers are.
  Gate gate;
  std::atomic<bool> all_pushed{false};
  std::jthread opener([&] {
    while (e.stats().throttled == 0 && !all_pushed) std::this_thread::yield();
    gate.open();
  });
  e.push([&] { gate.pass(); }, {.updates = {v}, .bytes = 1000});
  for (int i = 0; i < 2000; ++i) {
    e.push([&] { ++n; }, {.updates = {v}, .bytes = 1000});
    most = std::max(most, e.stats().bytes_in_flight);
  }
  all_pushed = true;
  opener.join();
  e.wait_all();
  EXPECT_EQ(2000, n);
  EXPECT_LE(most, 11'000u);
  EXPECT_GE(e.stats().throttled, 1u);
  EXPECT_EQ(0u, e.stats().bytes_in_flight);
}

// The bytes of an operation with more than four variables are stored in its first ExtBlock.
TEST_P(RunAhead, BytesOfOperationsWithManyVariablesAreCounted) {
  Engine e(options());
  std::vector<Var> vars(12);
  for (Var& v : vars) v = e.new_var();
  Hold hold;
  e.push_async(hold.operation(), {.writes = {vars[0]}});
  int n = 0;
  for (int i = 0; i < 50; ++i) e.push([&] { ++n; }, {.updates = vars, .bytes = 100});
  EXPECT_EQ(5000u, e.stats().bytes_in_flight);
  hold.release();
  e.wait_all();
  EXPECT_EQ(50, n);
  EXPECT_EQ(0u, e.stats().bytes_in_flight);
}

// A pusher is throttled long before the limit: a backlog of a few milliseconds of work is enough.
// A pusher that is woken early sleeps again at once: training a small network took a fifth longer.
TEST(RunAheadOfShortOperations, ASleepingPusherIsWokenWhenEnoughHaveEnded) {
  detail::RunAhead ahead({.max_ops_in_flight = 1000}, 2);
  constexpr uint64_t kTicket = 900;
  constexpr int64_t kEnough = 400;  // 500 must end
  std::thread pusher([&] {
    const auto over = [&] { return ahead.many(kTicket, kEnough); };
    while (over()) ahead.sleep(kTicket, kEnough, over);
  });
  while (!ahead.sleepers()) std::this_thread::yield();
  for (uint64_t ended = 0; ended < 500; ++ended) {
    ahead.publish_ended(ended);
    EXPECT_FALSE(ahead.wake_if_due());
  }
  // In mid-sleep or between two sleeps of the pusher: some call finds it asleep, or it sees by itself.
  ahead.publish_ended(500);
  ahead.wake_if_due();
  pusher.join();
  EXPECT_FALSE(ahead.wake_if_due());  // nobody sleeps
}

TEST(RunAheadOfShortOperations, IsHeldWhereItDoesGood) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor pushers are held by the ring";
  Engine e(test::threaded_case(2).options);
  Var v = e.new_var();
  const int most = static_cast<int>(test::threaded_case(2).options.max_ops_in_flight) - 128;
  int i = 0;
  for (; i < most && e.stats().throttled == 0; ++i) e.push([] { spin_for(20); }, {.updates = {v}});
  EXPECT_LT(i, most);
  e.wait_all();
}

// The throttled pusher may be the thread that the operations wait for, so it must not be blocked.
TEST(RunAheadOfShortOperations, IsNotHeldWhereNothingEnds) {
  Engine e(test::threaded_case(2).options);
  Var v = e.new_var();
  for (int i = 0; i < 1000; ++i) e.push([] { spin_for(20); }, {.updates = {v}});
  e.wait(v);
  Gate gate;
  int n = 0;
  e.push([&] { gate.pass(); }, {.updates = {v}});
  for (int i = 0; i < 20'000; ++i) e.push([&n] { ++n; }, {.updates = {v}});
  EXPECT_EQ(0, n);
  gate.open();
  e.wait_all();
  EXPECT_EQ(20'000, n);
}

// A single operation that exceeds the limit is admitted.
TEST_P(RunAhead, AnOperationLargerThanTheByteLimitRuns) {
  EngineOptions limited = options();
  limited.max_bytes_in_flight = 10;
  Engine e(limited);
  Var v = e.new_var();
  int n = 0;
  for (int i = 0; i < 10; ++i) e.push([&] { ++n; }, {.updates = {v}, .bytes = 1'000'000});
  e.wait(v);
  EXPECT_EQ(10, n);
}

// While the engine is paused, no operation can finish before the pusher continues. The pusher must be
// admitted far beyond the limit and the size of the ring.
TEST_P(RunAhead, APausedEngineAdmits) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 100;
  limited.max_bytes_in_flight = 100;
  Engine e(limited);
  Var v = e.new_var();
  int n = 0;
  e.pause();
  for (int i = 0; i < 20'000; ++i) e.push([&] { ++n; }, {.updates = {v}, .bytes = 10});
  EXPECT_EQ(0, n);
  e.resume();
  e.wait_all();
  EXPECT_EQ(20'000, n);
}

// All operations depend on one that ends only after the pusher has continued.
TEST_P(RunAhead, OperationsBehindAHeldOneAreAdmitted) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 100;
  Engine e(limited);
  Hold hold;
  Var v = e.new_var();
  int n = 0;
  e.push_async(hold.operation(), {.writes = {v}});
  for (int i = 0; i < 20'000; ++i) e.push([&] { ++n; }, {.updates = {v}});
  hold.release();
  e.wait_all();
  EXPECT_EQ(20'000, n);
}

TEST_P(RunAhead, APushFromInsideAnOperationDoesNotBlock) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 10;
  limited.max_bytes_in_flight = 10;
  Engine e(limited);
  Var v = e.new_var(), w = e.new_var();
  int n = 0;
  e.push(
      [&] {
        for (int i = 0; i < 20'000; ++i) e.push([&] { ++n; }, {.reads = {v}, .updates = {w}, .bytes = 10});
      },
      {.updates = {v}});
  e.wait(v);
  e.wait(w);
  EXPECT_EQ(20'000, n);
}

// Asynchronous operations that another thread completes count until their tokens are used.
TEST_P(RunAhead, OutstandingTokensAreLimited) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 256;
  Engine e(limited);
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Completion> tokens;
  constexpr int kCount = 20'000;
  std::thread completer([&] {
    for (int i = 0; i < kCount; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !tokens.empty(); });
      Completion token = std::move(tokens.front());
      tokens.pop_front();
      lock.unlock();
      token.done();
      if (i % 64 == 0) std::this_thread::yield();
    }
  });
  uint64_t most = 0;
  for (int i = 0; i < kCount; ++i) {
    e.push_async([&](RunContext, Completion done) {
      std::lock_guard lock(mutex);
      tokens.push_back(std::move(done));
      changed.notify_one();
    });
    most = std::max(most, e.stats().in_flight);
  }
  completer.join();
  e.wait_all();
  EXPECT_LE(most, 256u + 2 * 64);
}

// No completion arrives before the limit is exceeded. The pusher is throttled, and nothing more is admitted,
// until one arrives.
TEST_P(RunAhead, APusherWaitsForTheCompletionOfAnotherThread) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 64;
  Engine e(limited);
  std::mutex mutex;
  std::vector<Completion> tokens;
  std::thread completer([&] {
    // A nonzero counter shows that the pusher is waiting.
    while (e.stats().throttled == 0) std::this_thread::yield();
    for (bool all = false; !all;) {
      std::vector<Completion> some;
      {
        std::lock_guard lock(mutex);
        some.swap(tokens);
      }
      for (Completion& token : some) token.done();
      all = e.stats().pushed == 1000 && e.stats().in_flight == 0;
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 1000; ++i) {
    e.push_async([&](RunContext, Completion done) {
      std::lock_guard lock(mutex);
      tokens.push_back(std::move(done));
    });
  }
  completer.join();
  EXPECT_GE(e.stats().throttled, 1u);
  e.wait_all();
}

// The pushing thread holds all the tokens itself. It is delayed, but not forever.
TEST_P(RunAhead, APusherThatHoldsTheTokensItselfIsAdmitted) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 100;
  limited.max_bytes_in_flight = 1000;
  Engine e(limited);
  std::vector<Hold> holds(1000);
  for (Hold& hold : holds) e.push_async(hold.operation(), {.bytes = 10});
  for (Hold& hold : holds) hold.release();
  e.wait_all();
  EXPECT_EQ(1000u, e.stats().completed);
  EXPECT_GE(e.stats().throttled, 1u);
}

// Deleting never blocks, however many operations are in flight, because the last use of an array may be
// anywhere in a program.
TEST_P(RunAhead, DeletionDoesNotBlock) {
  EngineOptions limited = options();
  limited.max_ops_in_flight = 10;
  Engine e(limited);
  Gate gate;
  std::vector<Var> vars(1000);
  for (Var& v : vars) v = e.new_var();
  e.push([&] { gate.pass(); }, {.reads = vars});
  gate.entered();
  for (Var v : vars) e.delete_var(v);
  EXPECT_EQ(1000u, e.stats().vars);
  gate.open();
  e.wait_all();
  EXPECT_EQ(0u, e.stats().vars);
}

}  // namespace
}  // namespace mx
