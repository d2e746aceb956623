// The engine's workers are oneTBB's: an idle one serves the loops that operations run inside.
#include <gtest/gtest.h>

#include <atomic>

#include "engine/base/cpus.h"
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

}  // namespace
}  // namespace mx
