// Waiting: a wait covers exactly the operations pushed before it, is not delayed by unrelated operations, and
// with a time limit runs no operation.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/waiting.h"

namespace mx {
namespace {

using test::error_of;
using test::Gate;
using test::Hold;

using Waiting = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Waiting, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Waiting, ForAllDoesNotWaitForWhatIsPushedLater) {
  Hold before, later;
  e_.push_async(before.operation());
  std::thread first([&] { e_.wait_all(); });
  test::until_waiting(e_, 1);
  // The first wait has closed the epoch of the first operation, and the next epoch is empty.
  std::thread second([&] { e_.wait_all(); });
  test::until_waiting(e_, 2);
  e_.push_async(later.operation());
  before.release();
  first.join();
  second.join();
  EXPECT_FALSE(e_.wait_all(0));
  later.release();
  e_.wait_all();
}

TEST_P(Waiting, ForAllAgainAndAgainBesideAnOperationThatDoesNotEnd) {
  Hold stuck;
  e_.push_async(stuck.operation());
  for (int i = 0; i < 600; ++i) {
    Hold one;
    e_.push_async(one.operation());
    EXPECT_FALSE(e_.wait_all(0));
    one.release();
  }
  Hold later;
  std::thread waiter([&] { e_.wait_all(); });
  test::until_waiting(e_);
  e_.push_async(later.operation());
  stuck.release();
  waiter.join();
  later.release();
  e_.wait_all();
}

TEST_P(Waiting, WithALimitRunsNothing) {
  if (e_.options().mode == EngineMode::naive) GTEST_SKIP() << "operations run inside their push";
  Var v = e_.new_var();
  for (int round = 0; round < 300; ++round) {
    std::atomic<std::thread::id> ran_on{};
    e_.pause();
    e_.push([&] { ran_on = std::this_thread::get_id(); }, {.updates = {v}});
    std::thread waiter([&] {
      const std::thread::id me = std::this_thread::get_id();
      const bool one = round % 2 == 0;
      EXPECT_TRUE(one ? e_.wait(v, 60'000) : e_.wait_all(60'000));
      EXPECT_NE(me, ran_on.load());
    });
    test::until_waiting(e_);
    std::thread([&] { e_.resume(); }).join();
    waiter.join();
    if (HasFailure()) return;
  }
}

// Both threads of the engine run operations that end only after the wait.
class WaitingOutside : public ::testing::TestWithParam<int> {
 protected:
  void block_all_threads() {
    for (int i = 0; i < GetParam(); ++i) e_.push([this] { gate_.pass(); });
    gate_.entered(GetParam());
  }
  void finish() {
    gate_.open();
    e_.wait_all();
  }
  Engine e_{test::threaded_case(GetParam()).options};
  Gate gate_;
};
INSTANTIATE_TEST_SUITE_P(Threads, WaitingOutside, ::testing::Values(1, 2, 4));

TEST_P(WaitingOutside, RunsWhatIsReadyAndOnItsWay) {
  block_all_threads();
  Var a = e_.new_var(), b = e_.new_var();
  for (int i = 0; i < 50; ++i) e_.push([] {});  // unrelated operations, before it in the queue
  e_.push([] {}, {.writes = {a}});
  e_.push([] {}, {.reads = {a}, .writes = {b}});
  e_.wait(b);
  finish();
}

TEST_P(WaitingOutside, RunsWhatBecomesReadyWhileItSleeps) {
  block_all_threads();
  Hold hold;
  Var a = e_.new_var(), b = e_.new_var();
  e_.push_async(hold.operation(), {.writes = {a}});
  e_.push([] {}, {.reads = {a}, .writes = {b}});
  // The waiter issues the asynchronous operation and then has nothing to run.
  std::thread waiter([&] { e_.wait(b); });
  test::until_waiting(e_);
  hold.release();
  waiter.join();
  finish();
}

TEST_P(WaitingOutside, IssuesTheWorkOfDevices) {
  block_all_threads();
  Var a = e_.new_var();
  e_.push([](RunContext context) { context.stream()->submit([](KernelContext&) {}); },
          {.writes = {a}, .context = virt(0), .priority = 10});
  e_.wait(a);
  finish();
}

TEST_P(WaitingOutside, DoesNotRunBesideOperationsOnItsOwnWay) {
  // The threads already run as many related operations as there are threads; the waiter must not run one more
  // at the same time.
  std::atomic<int> inside{0}, most{0};
  Var out = e_.new_var();
  std::vector<Var> parts;
  for (int i = 0; i < 40; ++i) {
    parts.push_back(e_.new_var());
    e_.push(
        [&] {
          const int now = ++inside;
          for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
          }
          for (int k = 0; k < 50; ++k) std::this_thread::yield();
          --inside;
        },
        {.writes = {parts.back()}});
  }
  e_.push([] {}, {.reads = parts, .writes = {out}});
  e_.wait(out);
  EXPECT_LE(most, GetParam());
}

// The engine destroys users' exceptions without holding its lock, so their destructors may call the engine.
struct Looks : std::runtime_error {
  explicit Looks(Engine& e) : std::runtime_error("looks"), engine(&e) {}
  Looks(const Looks&) = default;
  ~Looks() override {
    (void)engine->stats();
    engine->push([] {});
  }
  Engine* engine;
};
struct Owns : std::runtime_error {
  explicit Owns(Engine& e)
      : std::runtime_error("owns"), var(new Var(e.new_var()), [&e](Var* v) {
          e.delete_var(*v);
          delete v;
        }) {}
  std::shared_ptr<Var> var;
};

template <class E>
void lose_errors(Engine& e) {
  Var v = e.new_var(), u = e.new_var();
  for (int i = 0; i < 50; ++i) {
    e.push([&e] { throw E(e); }, {.writes = {v}});
    e.push([] {}, {.reads = {v}, .writes = {u}});
    e.push([] {}, {.writes = {v, u}});  // the write recovers the variables
    try {
      e.wait_all();
      ADD_FAILURE() << "the error was lost";
    } catch (const OperationError&) {
    }
    e.push([&e] { throw E(e); }, {.writes = {v}});
    try {
      e.wait(v);
    } catch (const OperationError&) {
    }
    e.cancel();
  }
  try {
    e.wait_all();
  } catch (const OperationError&) {
  }
  e.delete_var(v);
  e.delete_var(u);
  e.wait_all();
}

TEST_P(Waiting, ExceptionsThatUseTheEngineWhenTheyGo) {
  lose_errors<Looks>(e_);
  lose_errors<Owns>(e_);
  // A worker destroys an exception after it has unlocked the engine, so the wait may return a little earlier.
  while (e_.stats().vars > 0) std::this_thread::yield();
}

TEST(Cancel, ReachesOperationsThatWaitForADevice) {
  Engine e(test::threaded_case(2).options);
  Gate gate;
  Var a = e.new_var(), b = e.new_var();
  bool ran = false;
  e.push([&](RunContext context) { context.stream()->submit([&](KernelContext&) { gate.pass(); }); },
         {.writes = {a}, .context = virt(0)});
  e.push([&] { ran = true; }, {.reads = {a}, .writes = {b}});
  gate.entered();
  e.cancel();
  gate.open();
  error_of<Cancelled>([&] { e.wait(b); });
  EXPECT_FALSE(ran);
  e.wait(a);
  error_of<Cancelled>([&] { e.wait_all(); });
}

TEST_P(Waiting, ASegmentThatOutlivesItsEngineRefusesToReplay) {
  Segment segment;
  {
    Engine e(GetParam().options);
    Var v = e.new_var();
    segment = e.record([&] { e.push([] {}, {.updates = {v}}); });
    segment.replay();
    e.wait_all();
  }
  error_of<InvalidState>([&] { segment.replay(); });
}

}  // namespace
}  // namespace mx
