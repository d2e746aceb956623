// Asynchronous operations: the completion token may be used at any time, on any thread, or not at all.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/scaled_steps.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Hold;
using test::LogCapture;

using Async = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Async, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Async, CompletedInside) {
  Var v = e_.new_var();
  int value = 0, seen = 0;
  e_.push_async(
      [&](RunContext, Completion done) {
        value = 1;
        done.done();
      },
      {.writes = {v}});
  e_.push_async(
      [&](RunContext, Completion done) {
        value += 1;
        done();
      },
      {.updates = {v}});
  e_.push([&] { seen = value; }, {.updates = {v}});
  e_.wait(v);
  EXPECT_EQ(2, seen);
}

TEST_P(Async, CompletedByAnotherThread) {
  std::vector<std::thread> threads;
  Var v = e_.new_var();
  int value = 0;
  for (int i = 0; i < 50; ++i) {
    e_.push_async(
        [&](RunContext, Completion done) {
          threads.emplace_back([&value, done = std::move(done)]() mutable {
            ++value;
            done();
          });
        },
        {.updates = {v}});
    e_.push(
        [&] {
          value *= 2;
          value %= 1000003;
        },
        {.updates = {v}});
  }
  e_.wait(v);
  int expected = 0;
  for (int i = 0; i < 50; ++i) expected = (expected + 1) * 2 % 1000003;
  EXPECT_EQ(expected, value);
  for (std::thread& t : threads) t.join();
}

// Another thread completes the operation while its function still runs. The dependants must still wait for
// the function.
TEST_P(Async, CompletedElsewhereBeforeTheFunctionReturns) {
  Var v = e_.new_var();
  bool returned = false, seen = false;
  e_.push_async(
      [&](RunContext, Completion done) {
        std::thread([&] { done(); }).join();
        returned = true;
      },
      {.writes = {v}});
  e_.push([&] { seen = returned; }, {.updates = {v}});
  e_.wait(v);
  EXPECT_TRUE(seen);
}

TEST_P(Async, ManyAtOnceCompletedInAnyOrder) {
  constexpr size_t kCount = 100;
  std::vector<Hold> holds(kCount);
  std::vector<Var> vars(kCount);
  std::atomic<int> ran{0};
  for (size_t i = 0; i < kCount; ++i) {
    vars[i] = e_.new_var();
    e_.push_async(holds[i].operation(), {.writes = {vars[i]}});
    e_.push([&] { ++ran; }, {.updates = {vars[i]}});
  }
  for (size_t i = 0; i < kCount; ++i) holds[(i * 37) % kCount].release();
  e_.wait_all();
  EXPECT_EQ(static_cast<int>(kCount), ran.load());
}

TEST_P(Async, DroppedIsAnError) {
  Var v = e_.new_var();
  e_.push_async([](RunContext, Completion) {}, {.writes = {v}, .name = "careless"});
  const std::string text = error_of<OperationError>([&] { e_.wait(v); });
  EXPECT_TRUE(contains(text, "[careless]")) << text;
  EXPECT_TRUE(contains(text, "destroyed without a call")) << text;

  Var w = e_.new_var();
  std::thread thread;
  e_.push_async(
      [&](RunContext, Completion done) {
        auto callback = std::make_shared<Completion>(std::move(done));
        thread = std::thread([callback = std::move(callback)]() mutable { callback.reset(); });
      },
      {.writes = {w}, .name = "careless"});
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(w); }), "destroyed without a call"));
  thread.join();
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Async, OverwrittenIsDropped) {
  Var v = e_.new_var();
  e_.push_async([](RunContext, Completion done) { done = Completion(); }, {.writes = {v}});
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(v); }), "destroyed without a call"));
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Async, ASecondUseThrowsAndChangesNothing) {
  Var v = e_.new_var();
  std::atomic<int> refused{0};
  e_.push_async(
      [&](RunContext, Completion done) {
        done();
        const auto error = std::make_exception_ptr(std::runtime_error("late"));
        refused += !error_of<InvalidState>([&] { done(); }).empty();
        refused += !error_of<InvalidState>([&] { done.fail(error); }).empty();
        Completion moved = std::move(done);
        refused += !moved && !error_of<InvalidState>([&] { moved(); }).empty();
      },
      {.writes = {v}});
  e_.wait(v);
  e_.wait_all();
  EXPECT_EQ(3, refused.load());
}

TEST_P(Async, AMovedFromTokenIsEmpty) {
  Var v = e_.new_var();
  bool good = false;
  e_.push_async(
      [&](RunContext, Completion done) {
        Completion other = std::move(done);
        good = other && !done && !error_of<InvalidState>([&] { done(); }).empty();
        Completion third;
        third = std::move(other);
        third();
      },
      {.writes = {v}});
  e_.wait(v);
  EXPECT_TRUE(good);
  Completion none;
  EXPECT_FALSE(none);
  error_of<InvalidState>([&] { none(); });
}

TEST_P(Async, FailPoisons) {
  Var v = e_.new_var();
  Hold hold;
  bool ran = false;
  std::thread thread;
  e_.push_async(
      [&](RunContext, Completion done) {
        thread = std::thread([done = std::move(done)]() mutable {
          done.fail(std::make_exception_ptr(DeviceError("link down")));
        });
      },
      {.writes = {v}, .name = "receive"});
  e_.push([&] { ran = true; }, {.updates = {v}});
  const std::string text = error_of<DeviceError>([&] { e_.wait(v); });
  EXPECT_TRUE(contains(text, "[receive]") && contains(text, "link down")) << text;
  thread.join();
  EXPECT_FALSE(ran);
  error_of<DeviceError>([&] { e_.wait_all(); });
}

TEST_P(Async, AnExceptionFailsIt) {
  Var v = e_.new_var();
  e_.push_async([](RunContext, Completion) { throw std::runtime_error("thrown"); }, {.writes = {v}});
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(v); }), "thrown"));
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Async, AnExceptionAfterTheTokenWasUsedChangesNothing) {
  LogCapture log;
  Var v = e_.new_var();
  int seen = 0;
  e_.push_async(
      [](RunContext, Completion done) {
        done();
        throw std::runtime_error("too late");
      },
      {.writes = {v}});
  e_.push([&] { seen = 1; }, {.updates = {v}});
  e_.wait(v);
  e_.wait_all();
  EXPECT_EQ(1, seen);
  EXPECT_EQ(1u, log.count("too late"));  // too late to fail the operation, so it is logged
}

// The function has thrown, but another thread still holds its token. The operation ends when the token is
// used, and as a failure, because the outcome was decided by the exception.
TEST_P(Async, AnExceptionBeforeTheTokenIsUsedFailsIt) {
  Var v = e_.new_var();
  std::promise<Completion> handed;
  e_.push_async(
      [&](RunContext, Completion done) {
        handed.set_value(std::move(done));
        throw std::runtime_error("half done");
      },
      {.writes = {v}});
  EXPECT_FALSE(e_.wait(v, 0));
  std::future<Completion> future = handed.get_future();
  if (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    EXPECT_FALSE(e_.wait(v, 1));  // in mode fuzz the operation may not have started yet
  }
  Completion token = future.get();
  // Long enough for a worker that was preempted between handing out the token and throwing.
  EXPECT_FALSE(e_.wait(v, 300));
  token.done();
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(v); }), "half done"));
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Async, ShutdownWaitsForCompletion) {
  for (int round = 0; round < 20; ++round) {
    Hold hold;
    std::atomic<bool> ended{false};
    std::promise<void> begun;
    std::thread thread;
    {
      Engine e(GetParam().options);
      Var v = e.new_var();
      e.push_async(hold.operation(), {.writes = {v}});
      e.push([&] { ended = true; }, {.updates = {v}});
      thread = std::thread([&] {
        begun.get_future().wait();
        hold.release();
      });
      begun.set_value();
      e.shutdown();
      EXPECT_TRUE(ended.load());
    }
    thread.join();
  }
}

// The engine may be destroyed as soon as the last operation has ended, even if the thread that ended it has
// not yet returned from Completion::done().
TEST_P(Async, TheEngineMayGoRightAfterTheLastCompletion) {
  for (int round = 0; round < test::scaled_steps(200); ++round) {
    Hold hold;
    std::thread thread([&] { hold.release(); });
    {
      Engine e(GetParam().options);
      e.push_async(hold.operation(), {});
    }
    thread.join();
  }
}

// Other threads wait while the chain alternates between workers and a completing thread.
TEST_P(Async, ChainsThroughAnotherThreadWakeTheWaiter) {
  Var v = e_.new_var();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Completion> queue;
  bool stop = false;
  int value = 0;
  std::thread server([&] {
    std::unique_lock lock(mutex);
    while (!stop || !queue.empty()) {
      changed.wait(lock, [&] { return stop || !queue.empty(); });
      std::vector<Completion> batch = std::exchange(queue, {});
      lock.unlock();
      for (Completion& done : batch) {
        ++value;
        done();
      }
      lock.lock();
    }
  });
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 20; ++i) {
      e_.push_async(
          [&](RunContext, Completion done) {
            std::lock_guard lock(mutex);
            queue.push_back(std::move(done));
            changed.notify_one();
          },
          {.updates = {v}});
      e_.push([&] { ++value; }, {.updates = {v}});
    }
    e_.wait(v);
    EXPECT_EQ((round + 1) * 40, value);
  }
  {
    std::lock_guard lock(mutex);
    stop = true;
    changed.notify_one();
  }
  server.join();
}

}  // namespace
}  // namespace mx
