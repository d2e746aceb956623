// The state "inside an operation". A thread that helps with a loop of an operation is inside that operation.
// A thread that runs other operations during a wait is not inside its own program meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "engine/base/shared_loop.h"
#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/waiting.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

// Runs a shared loop of two pieces, one on the calling thread and one on a helper thread, and calls f on the
// helper.
template <class F>
void run_on_a_helper(const F& f) {
  struct State {
    const F& f;
    const std::thread::id owner;
    std::atomic<int> arrived{0};
  } state{f, std::this_thread::get_id()};
  std::atomic<bool> over{false};
  std::thread helper([&] {
    while (!over) SharedLoop::help(SharedLoop::Look::all, [&] { return over.load(); });
  });
  {
    SharedLoop loop(
        2, 1,
        [](const void* body, int64_t, int64_t) {
          State& s = *static_cast<State*>(const_cast<void*>(body));
          ++s.arrived;
          while (s.arrived < 2) std::this_thread::yield();  // each thread gets one piece
          if (std::this_thread::get_id() != s.owner) s.f();
        },
        &state, 2);
    loop.run(SharedLoop::kForever);
    over = true;
    loop.finish();
  }
  helper.join();
}

using Inside = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Inside, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Inside, WaitingOnAThreadThatHelpsThrows) {
  Var v = e_.new_var();
  std::string one, all, limited;
  e_.push(
      [&] {
        run_on_a_helper([&] {
          one = error_of<InvalidState>([&] { e_.wait(v); });
          all = error_of<InvalidState>([&] { e_.wait_all(); });
          limited = error_of<InvalidState>([&] { e_.wait(v, 1); });
        });
      },
      {.updates = {v}, .name = "looper"});
  e_.wait(v);
  EXPECT_TRUE(contains(one, "'looper'")) << one;
  EXPECT_TRUE(contains(all, "'looper'")) << all;
  EXPECT_TRUE(contains(limited, "'looper'")) << limited;
}

// A wait also throws on a thread that the owner called, as with oneTBB's threads.
TEST_P(Inside, WaitingOnAThreadThatWasCalledThrows) {
  Var v = e_.new_var();
  std::string message;
  e_.push(
      [&] {
        auto body = [&] { message = error_of<InvalidState>([&] { e_.wait(v); }); };
        using Body = decltype(body);
        SharedLoop loop(
            1, 1, [](const void* f, int64_t, int64_t) { (*static_cast<Body*>(const_cast<void*>(f)))(); },
            &body, 2);
        std::thread([&] { loop.join(1); }).join();
        loop.finish();
      },
      {.updates = {v}, .name = "caller"});
  e_.wait(v);
  EXPECT_TRUE(contains(message, "'caller'")) << message;
}

TEST_P(Inside, AHelperIsOutsideAgainWhenItHasHelped) {
  Var v = e_.new_var();
  std::thread::id helper_thread;
  e_.push([&] { run_on_a_helper([&] { helper_thread = std::this_thread::get_id(); }); }, {.updates = {v}});
  e_.wait(v);
  EXPECT_NE(std::thread::id(), helper_thread);
  e_.wait(v);  // no matter which thread helped, this thread may still wait
}

TEST(InsideThreaded, APushFromAHelperNeverBlocks) {
  EngineOptions options = test::threaded_case(1).options;
  options.max_ops_in_flight = 1;
  Engine e(options);
  std::atomic<int> count{0};
  Var v = e.new_var();
  e.push(
      [&] {
        run_on_a_helper([&] {
          for (int i = 0; i < 200; ++i) e.push([&] { ++count; }, {.reads = {v}});
        });
      },
      {.updates = {v}});
  e.wait(v);
  e.wait_all();
  EXPECT_EQ(200, count);
}

TEST(InsideChecked, AHelpersAccessIsComparedWithWhatTheOperationDeclared) {
  Engine e(test::mode_case(EngineMode::check, "check").options);
  Var declared = e.new_var(), other = e.new_var();
  std::optional<std::string> good = "not asked", bad;
  e.push(
      [&] {
        run_on_a_helper([&] {
          good = Engine::undeclared_in(declared, true);
          bad = Engine::undeclared_in(other, true);
        });
      },
      {.updates = {declared}, .name = "checked"});
  e.wait(declared);
  EXPECT_EQ(std::nullopt, good);
  EXPECT_EQ("checked", bad);
}

// A thread that records for one engine and waits for another runs operations of the other engine during the
// wait. Pushes of those operations must not be recorded.
TEST_P(Inside, WhatRunsInAWaitIsNotRecordedByTheWaiter) {
  Engine recorder(test::mode_case(EngineMode::naive, "naive").options);
  Var v = e_.new_var();
  std::atomic<int> ran{0};
  for (int round = 0; round < 100; ++round) {
    Segment segment = recorder.record([&] {
      recorder.push([] {});
      e_.push([&] { recorder.push([&] { ++ran; }); }, {.updates = {v}});
      e_.wait(v);
    });
    ASSERT_EQ(1u, segment.operations());
  }
  recorder.wait_all();
  EXPECT_EQ(100, ran);
}

TEST(InsideStream, WaitingInATaskOfAStreamThrows) {
  Engine e(test::threaded_case(2).options);
  Var v = e.new_var();
  std::string message;
  e.push(
      [&](RunContext context) {
        context.stream()->submit(
            [&](KernelContext&) { message = error_of<InvalidState>([&] { e.wait(v); }); });
      },
      {.updates = {v}, .context = virt(0)});
  e.wait(v);
  EXPECT_TRUE(contains(message, "task of a stream")) << message;
}

}  // namespace
}  // namespace mx
