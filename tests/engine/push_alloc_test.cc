// A push and its execution allocate nothing in steady state. This is a separate program because it counts the
// calls of operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "engine/engine.h"
#include "tests/support/counted_allocations.h"
#include "tests/support/engine_cases.h"

namespace mx {
namespace {

using PushAllocations = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, PushAllocations, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(PushAllocations, NoneInSteadyState) {
  std::vector<Var> v(10);
  for (Var& var : v) var = e_.new_var();
  std::atomic<int> n{0};
  const auto push_some = [&] {
    for (size_t i = 0; i < 100; ++i) {
      const Var a = v[i % 10], b = v[(i + 3) % 10], c = v[(i + 7) % 10];
      const Var temporary = e_.new_var();
      e_.push([&n] { ++n; }, {.reads = {a, b}, .writes = {c}});
      e_.push([&n] { ++n; }, {.reads = {c}, .writes = {temporary}, .updates = {a}});
      e_.push_async([&n](RunContext, Completion done) { ++n, done(); }, {.updates = {temporary}});
      e_.delete_var(temporary);
    }
    e_.wait(v[3]);
    e_.wait_all();
  };
  // Calling a worker or growing a queue allocates now and then. Most rounds must not allocate.
  int rounds_without = 0;
  for (int round = 0; round < 200; ++round) {
    const uint64_t before = allocations.load();
    push_some();
    rounds_without += allocations.load() == before;
  }
  EXPECT_EQ(200 * 300, n.load());
  EXPECT_GT(rounds_without, 150);
}

}  // namespace
}  // namespace mx
