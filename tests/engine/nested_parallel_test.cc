// The engine's workers are oneTBB's: an idle one serves the loops that operations run inside.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/base/cpus.h"
#include "engine/base/shared_loop.h"
#include "tests/support/engine_cases.h"
#include "tests/support/parallel_loop.h"

namespace mx {
namespace {

// Two iterations that end only together need two threads.
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
    // Make both workers busy first, so that one has to go back.
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

/// Runs a shared loop of pieces in an operation, and waits for it, until `enough`.
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
  e.push(meet);  // two workers are there now
  std::atomic<bool> met{false};
  std::atomic<std::thread::id> first{};
  run_shared_loops(
      e, 8,
      [&](int64_t begin) {
        const std::thread::id me = std::this_thread::get_id();
        if (begin == 0) first = me;
        // (The waiter helps, too; it is not what is looked for, but does no harm.)
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

}  // namespace
}  // namespace mx
