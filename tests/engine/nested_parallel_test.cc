// The engine's workers are threads of oneTBB, so an idle worker helps with the loops that operations run.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/base/cpus.h"
#include "engine/base/shared_loop.h"
#include "tests/support/engine_cases.h"
#include "tests/support/parallel_loop.h"
#include "tests/support/spin.h"

namespace mx {
namespace {

// Two iterations that wait for each other, so the loop needs two threads.
void meet_in_a_loop() {
  std::atomic<int> arrived{0};
  test::parallel_loop(2, [&](int) {
    ++arrived;
    while (arrived.load() < 2) {
    }
  });
}

TEST(NestedParallel, ALoopInsideAnOperationGetsTwoThreads) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor a loop may have one thread";
  Engine e(test::threaded_case(2).options);
  Var v = e.new_var();
  for (int i = 0; i < 20; ++i) {
    // Make both workers busy first, so that one must return to oneTBB to serve the loop.
    for (int k = 0; k < 200; ++k) e.push([] {}, {.reads = {v}});
    e.push(meet_in_a_loop, {.updates = {v}});
    e.wait(v);
  }
}

TEST(NestedParallel, ALoopOutsideOperationsGetsTwoThreadsToo) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor a loop may have one thread";
  Engine e(test::threaded_case(2).options);
  e.push([] {});
  e.wait_all();
  for (int i = 0; i < 20; ++i) meet_in_a_loop();
}

/// Runs a shared loop of pieces in an operation and waits for it, repeatedly until `enough`.
template <class Piece, class Enough>
void run_shared_loops(Engine& e, int pieces, const Piece& piece, const Enough& enough) {
  Var v = e.new_var();
  while (!enough()) {
    e.push(
        [&] {
          SharedLoop loop(
              pieces, 1,
              [](const void* body, int64_t begin, int64_t) { (*static_cast<const Piece*>(body))(begin); },
              &piece, 2);
          loop.run(SharedLoop::kForever);
          loop.finish();
        },
        {.updates = {v}});
    e.wait(v);
  }
}

TEST(NestedParallel, AWorkerWithoutWorkTakesPart) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor there is one worker";
  EngineOptions options = test::threaded_case(2).options;
  options.spin_us = 100'000;
  Engine e(options);
  std::atomic<int> arrived{0};
  const auto meet = [&] {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  };
  e.push(meet);
  e.push(meet);  // two workers are running now
  std::atomic<bool> met{false};
  std::atomic<std::thread::id> first{};
  run_shared_loops(
      e, 8,
      [&](int64_t begin) {
        const std::thread::id me = std::this_thread::get_id();
        if (begin == 0) first = me;
        // The waiter helps with the loop as well. That is not what this test looks for, but does no harm.
        for (int i = 0; i < 1000 && first == me && !met; ++i) std::this_thread::yield();
        if (first != me && first != std::thread::id()) met = true;
      },
      [&] { return met.load(); });
  e.wait_all();
}

TEST(NestedParallel, AThreadThatWaitsTakesPartInShortLoops) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor a waiting thread leaves it to the worker";
  Engine e(test::threaded_case(1).options);
  const std::thread::id waiter = std::this_thread::get_id();
  std::atomic<bool> helped{false};
  run_shared_loops(
      e, 200,
      [&](int64_t) {
        if (std::this_thread::get_id() == waiter) helped = true;
        for (int i = 0; i < 100; ++i) cpu_relax();
      },
      [&] { return helped.load(); });
}

/// An operation that runs a loop of four pieces of half a millisecond each. It records whether the thread
/// that constructed it ran a piece of a loop that another thread owns.
class LongLoop {
 public:
  void operator()() {
    owner_ = std::this_thread::get_id();
    const auto piece = [this] {
      if (std::this_thread::get_id() == waiter_ && owner_ != waiter_) helped_ = true;
      test::spin_for(500);
    };
    SharedLoop loop(
        4, 1, [](const void* body, int64_t, int64_t) { (*static_cast<const decltype(piece)*>(body))(); },
        &piece, 2);
    loop.run(SharedLoop::kForever);
    loop.finish();
  }
  /// Returns true if the constructing thread helped with a loop that another thread owns.
  bool helped() const { return helped_; }

 private:
  const std::thread::id waiter_ = std::this_thread::get_id();
  std::thread::id owner_;
  std::atomic<bool> helped_{false};
};

TEST(NestedParallel, AThreadThatWaitsTakesPartInLongLoopsOfWhatItWaitsFor) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor a waiting thread leaves it to the worker";
  Engine e(test::threaded_case(1).options);
  for (const bool all : {false, true}) {
    LongLoop loop;
    Var v = e.new_var();
    while (!loop.helped()) {
      std::atomic<bool> begun{false};
      e.push([&] { begun = true, loop(); }, {.updates = {v}});
      while (!begun) std::this_thread::yield();  // another thread runs the operation
      all ? e.wait_all() : e.wait(v);
    }
  }
}

TEST(NestedParallel, AThreadThatWaitsWithALimitStaysOutOfLongLoops) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor a waiting thread leaves it to the worker";
  Engine e(test::threaded_case(1).options);
  Var v = e.new_var();
  for (int i = 0; i < 10; ++i) {
    LongLoop loop;
    std::atomic<bool> begun{false};
    e.push([&] { begun = true, loop(); }, {.updates = {v}});
    while (!begun) std::this_thread::yield();
    EXPECT_TRUE(e.wait(v, 60'000));
    EXPECT_FALSE(loop.helped());
  }
}

TEST(NestedParallel, AThreadThatWaitsStaysOutOfLongLoopsOfOthers) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor a waiting thread leaves it to the worker";
  Engine e(test::threaded_case(2).options);
  Var u = e.new_var(), v = e.new_var();
  for (int i = 0; i < 10; ++i) {
    LongLoop loop;
    std::atomic<bool> begun{false}, done{false};
    e.push(
        [&] {
          begun = true;
          while (!done) std::this_thread::yield();
        },
        {.updates = {v}});
    while (!begun) std::this_thread::yield();
    begun = false;
    e.push(
        [&] {
          begun = true;
          loop();
          done = true;
        },
        {.updates = {u}});
    while (!begun) std::this_thread::yield();
    e.wait(v);
    EXPECT_FALSE(loop.helped());
    e.wait(u);
  }
}

}  // namespace
}  // namespace mx
