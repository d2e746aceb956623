// A replay of a segment that is not plain allocates nothing in steady state. This is a separate program
// because it counts the calls of operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "engine/engine.h"
#include "tests/support/counted_allocations.h"
#include "tests/support/engine_cases.h"

namespace mx {
namespace {

using SegmentGroupAllocations = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, SegmentGroupAllocations, ::testing::ValuesIn(test::all_cases()),
                         test::CaseName());

TEST_P(SegmentGroupAllocations, NoneInSteadyState) {
  std::vector<Var> vars(10);
  for (Var& v : vars) v = e_.new_var();
  std::atomic<int> n{0};
  Segment s = e_.record([&] {
    e_.push([&] { ++n; }, {.writes = vars, .priority = 2});
    for (Var v : vars) {
      e_.push([&] { ++n; }, {.updates = {v}, .priority = -1});
      e_.push([&] { ++n; }, {.updates = {v}, .lane = StreamKind::comm});
      e_.push_async([&](RunContext, Completion done) { ++n, done(); }, {.updates = {v}});
      e_.push([&] { ++n; }, {.updates = {v}});
    }
  });
  // Calling a worker or growing a queue allocates now and then. Most rounds must not allocate.
  int rounds_without = 0;
  for (int round = 0; round < 200; ++round) {
    const uint64_t before = allocations.load();
    for (int i = 0; i < 5; ++i) s.replay();
    e_.wait_all();
    rounds_without += allocations.load() == before;
  }
  EXPECT_EQ(200 * 5 * 41, n.load());
  EXPECT_GT(rounds_without, 150);
}

}  // namespace
}  // namespace mx
