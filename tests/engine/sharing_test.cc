// Properties that need several workers: readers share, writers exclude, and a waiter is not delayed by
// unrelated operations.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::Gate;
using test::Hold;

class Sharing : public ::testing::TestWithParam<int> {
 protected:
  Engine e_{test::threaded_case(GetParam()).options};
};
INSTANTIATE_TEST_SUITE_P(Threads, Sharing, ::testing::Values(2, 3, 4));

TEST_P(Sharing, ReadersRunAtTheSameTime) {
  Var v = e_.new_var();
  for (int round = 0; round < 20; ++round) {
    std::barrier meeting(GetParam());
    e_.push([] {}, {.writes = {v}});
    for (int i = 0; i < GetParam(); ++i) e_.push([&] { meeting.arrive_and_wait(); }, {.reads = {v}});
    e_.wait_all();
  }
}

TEST_P(Sharing, IndependentOperationsRunAtTheSameTime) {
  for (int round = 0; round < 20; ++round) {
    std::barrier meeting(GetParam());
    std::vector<Var> vars;
    for (int i = 0; i < GetParam(); ++i) {
      vars.push_back(e_.new_var());
      e_.push([&] { meeting.arrive_and_wait(); }, {.updates = {vars.back()}});
    }
    e_.wait_all();
  }
}

TEST_P(Sharing, WritersExclude) {
  constexpr int kVars = 3;
  Var vars[kVars];
  for (Var& v : vars) v = e_.new_var();
  struct State {
    std::atomic<int> readers{0};
    std::atomic<int> writers{0};
  } state[kVars];
  std::atomic<int> violations{0};
  for (int i = 0; i < 3000; ++i) {
    const int a = i % kVars, b = (i / kVars) % kVars;
    if (i % 4 == 0) {
      e_.push(
          [&, a] {
            if (state[a].writers.fetch_add(1) != 0 || state[a].readers.load() != 0) ++violations;
            for (int spin = 0; spin < 50; ++spin) state[a].writers.load();
            if (state[a].readers.load() != 0) ++violations;
            state[a].writers.fetch_sub(1);
          },
          {.updates = {vars[a]}});
    } else {
      e_.push(
          [&, a, b] {
            ++state[a].readers;
            if (a != b) ++state[b].readers;
            if (state[a].writers.load() != 0 || state[b].writers.load() != 0) ++violations;
            for (int spin = 0; spin < 50; ++spin) state[a].readers.load();
            if (state[a].writers.load() != 0 || state[b].writers.load() != 0) ++violations;
            --state[a].readers;
            if (a != b) --state[b].readers;
          },
          {.reads = {vars[a], vars[b]}});
    }
  }
  e_.wait_all();
  EXPECT_EQ(0, violations.load());
}

// First come, first served: a reader that is pushed after a waiting writer does not overtake it.
TEST_P(Sharing, AReaderDoesNotOvertakeAWriter) {
  Gate gate;
  Var v = e_.new_var();
  int value = 0, seen = -1;
  e_.push([&] { gate.pass(); }, {.reads = {v}});
  gate.entered();
  e_.push([&] { value = 1; }, {.writes = {v}});
  e_.push([&] { seen = value; }, {.reads = {v}});
  gate.open();
  e_.wait_all();
  EXPECT_EQ(1, seen);
}

TEST_P(Sharing, WaitDoesNotWaitForABlockedReader) {
  Gate gate;
  Var v = e_.new_var();
  int value = 0;
  e_.push([&] { value = 1; }, {.writes = {v}});
  e_.push([&] { gate.pass(); }, {.reads = {v}});
  gate.entered();
  e_.wait(v);
  EXPECT_EQ(1, value);
  EXPECT_FALSE(e_.wait_all(0));
  gate.open();
  e_.wait_all();
}

TEST_P(Sharing, WaitReturnsWhileUnrelatedWorkBlocks) {
  Gate gate;
  Var blocked = e_.new_var(), v = e_.new_var();
  e_.push([&] { gate.pass(); }, {.updates = {blocked}});
  gate.entered();
  // Operations behind the blocked one. The waiter must not run them as if v depended on them.
  for (int i = 0; i < 100; ++i) e_.push([] {}, {.updates = {blocked}});
  int value = 0;
  for (int i = 0; i < 100; ++i) e_.push([&] { ++value; }, {.updates = {v}});
  e_.wait(v);
  EXPECT_EQ(100, value);
  gate.open();
  e_.wait_all();
}

// Every worker is in a long operation, and more long operations stand in the queue before the wanted one. The
// waiter runs exactly the operation it waits for.
TEST_P(Sharing, AWaiterRunsOnlyWhatItWaitsFor) {
  Gate gate;
  Var v = e_.new_var(), w = e_.new_var();
  const auto me = std::this_thread::get_id();
  std::atomic<bool> strayed{false};
  e_.pause();
  for (int i = 0; i < 50; ++i) {
    Var own = e_.new_var();
    e_.push([&, me] { strayed = strayed || std::this_thread::get_id() == me; }, {.updates = {own}});
  }
  e_.push([] {}, {.writes = {v}});
  e_.push([] {}, {.reads = {v}, .writes = {w}});
  e_.resume();
  e_.wait(w);
  EXPECT_FALSE(strayed.load());
  e_.wait_all();
}

// A short operation that was taken in one batch with a long one can still be found by a waiter.
TEST_P(Sharing, ALongOperationHidesNothing) {
  Var a = e_.new_var();
  for (int i = 0; i < 2000; ++i)
    e_.push([] {}, {.reads = {a}});  // lets the engine measure that the operations are short
  e_.wait_all();
  for (int round = 0; round < 20; ++round) {
    Gate gate;
    std::atomic<int> n{0};
    e_.pause();
    e_.push([&] { gate.pass(); }, {.reads = {a}});
    for (int i = 0; i < 100; ++i)
      e_.push(
          [&] {
            if (++n == 100) gate.open();
          },
          {.reads = {a}});
    e_.resume();
    e_.wait_all();
  }
}

TEST_P(Sharing, ManyWaitersOfManyVariables) {
  Hold hold;
  Var gate = e_.new_var();
  std::vector<Var> vars(8);
  std::vector<int> values(8, 0);
  for (Var& v : vars) v = e_.new_var();
  e_.push_async(hold.operation(), {.writes = {gate}});
  for (size_t i = 0; i < vars.size(); ++i) {
    e_.push([&values, i] { values[i] = static_cast<int>(i) + 1; }, {.reads = {gate}, .writes = {vars[i]}});
  }
  std::atomic<int> good{0};
  std::vector<std::thread> waiters;
  for (size_t t = 0; t < 16; ++t) {
    waiters.emplace_back([&, t] {
      e_.wait(vars[t % 8]);
      good += values[t % 8] == static_cast<int>(t % 8) + 1;
    });
  }
  hold.release();
  for (std::thread& t : waiters) t.join();
  EXPECT_EQ(16, good.load());
}

TEST_P(Sharing, WaitAllFromSeveralThreads) {
  Var v = e_.new_var();
  std::atomic<int> n{0};
  std::vector<std::thread> threads;
  std::atomic<int> missed{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        const int before = n.load();
        for (int k = 0; k < 5; ++k) e_.push([&] { ++n; }, {.reads = {v}});
        e_.wait_all();
        if (n.load() < before + 5) ++missed;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(0, missed.load());
  EXPECT_EQ(3 * 300 * 5, n.load());
}

}  // namespace
}  // namespace mx
