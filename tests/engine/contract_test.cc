// Properties that hold in every mode: serial meaning, variables and their lists, handles, closures.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::error_of;
using test::Hold;

using Contract = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Contract, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Contract, ResultIsThatOfPushOrder) {
  Var x = e_.new_var("x"), y = e_.new_var("y"), z = e_.new_var("z");
  uint64_t xv = 0, yv = 0, zv = 0;
  for (int round = 0; round < 100; ++round) {
    e_.push([&] { xv = 7; }, {.writes = {x}});
    e_.push([&] { xv = xv * 3 + yv; }, {.reads = {y}, .updates = {x}});
    e_.push([&] { zv = zv * 31 + xv; }, {.reads = {x}, .updates = {z}});
    e_.push([&] { yv = xv + 1; }, {.reads = {x}, .writes = {y}});
    e_.push([&] { xv = 99; }, {.writes = {x}});
  }
  e_.wait(z);
  e_.wait(y);
  uint64_t sx = 0, sy = 0, sz = 0;
  for (int round = 0; round < 100; ++round) {
    sx = 7 * 3 + sy;
    sz = sz * 31 + sx;
    sy = sx + 1;
  }
  EXPECT_EQ(sy, yv);
  EXPECT_EQ(sz, zv);
  e_.wait_all();  // waits for the last write to x
}

TEST_P(Contract, UpdatesOfOneVariableRunInPushOrder) {
  Var v = e_.new_var();
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) e_.push([&order, i] { order.push_back(i); }, {.updates = {v}});
  e_.wait(v);
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(expected, order);
}

TEST_P(Contract, WritesOfOneVariableRunInPushOrder) {
  Var v = e_.new_var();
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) e_.push([&order, i] { order.push_back(i); }, {.writes = {v}});
  e_.wait(v);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(1000u, order.size());
}

TEST_P(Contract, DuplicatesCountOnce) {
  Var a = e_.new_var(), b = e_.new_var(), c = e_.new_var();
  int n = 0;
  e_.push([&] { ++n; }, {.reads = {a, a, a}, .writes = {b, b}, .updates = {c, c}});
  e_.push([&] { ++n; }, {.reads = {a, a, a, a, a, a}, .writes = {b, b, b}, .updates = {c, c, c, c}});
  e_.push([&] { ++n; }, {.reads = {b, c}, .updates = {a, a}});
  e_.wait(a);
  EXPECT_EQ(3, n);
}

// A variable may stand in several lists of one operation. The operation does not wait for itself, and the
// access is an update.
TEST_P(Contract, OverlappingListsMakeAnUpdate) {
  Var a = e_.new_var();
  std::vector<Var> others(9);
  for (Var& v : others) v = e_.new_var();
  int value = 1;
  e_.push([&] { value = value * 2; }, {.reads = {a}, .writes = {a}});
  e_.push([&] { value = value * 2 + 1; }, {.writes = {a}, .updates = {a}});
  e_.push([&] { value = value * 2; }, {.reads = {a}, .writes = {a}, .updates = {a}});
  std::vector<Var> reads = others;
  reads.push_back(a);
  reads.insert(reads.end(), others.begin(), others.end());
  e_.push([&] { value = value * 2 + 1; },
          {.reads = reads, .writes = {others[3], a}, .updates = {a, others[4]}});
  e_.wait(a);
  EXPECT_EQ(0b10101, value);

  // Read plus write needs the old value, so the operation is skipped if that value is poisoned. A write alone
  // would recover the variable.
  for (const bool wide : {false, true}) {
    SCOPED_TRACE(wide);
    Var p = e_.new_var();
    bool ran = false;
    e_.push([] { throw std::runtime_error("spoiled"); }, {.writes = {p}});
    e_.push(
        [&] { ran = true; },
        {.reads = wide ? VarList{p, others[0], others[1], others[2], others[5]} : VarList{p}, .writes = {p}});
    error_of<OperationError>([&] { e_.wait(p); });
    EXPECT_FALSE(ran);
  }
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Contract, AnOperationMayTouchManyVariables) {
  constexpr int kVars = 300;
  std::vector<Var> vars(kVars);
  std::vector<int> values(kVars, 0);
  for (int i = 0; i < kVars; ++i) {
    vars[static_cast<size_t>(i)] = e_.new_var();
    e_.push([&values, i] { values[static_cast<size_t>(i)] = i; }, {.writes = {vars[static_cast<size_t>(i)]}});
  }
  for (size_t count : {4u, 5u, 10u, 11u, 12u, 300u}) {
    int sum = 0;
    Var out = e_.new_var();
    const std::vector<Var> some(vars.begin(), vars.begin() + static_cast<std::ptrdiff_t>(count));
    e_.push(
        [&, count] {
          sum = std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), 0);
        },
        {.reads = some, .writes = {out}});
    e_.push(
        [&values, count] {
          for (size_t i = 0; i < count; ++i) values[i] = values[i] * 2;
        },
        {.updates = some});
    e_.push(
        [&values, count] {
          for (size_t i = 0; i < count; ++i) values[i] = values[i] / 2;
        },
        {.updates = some});
    e_.wait(out);
    EXPECT_EQ(static_cast<int>(count * (count - 1) / 2), sum);
  }
  e_.wait_all();
  EXPECT_EQ(kVars - 1, values.back());
}

TEST_P(Contract, AnOperationMayTouchNothing) {
  int n = 0;
  e_.push([&] { n = 1; });
  e_.wait_all();
  EXPECT_EQ(1, n);
}

TEST_P(Contract, AFreshVariableDoesNotBlock) {
  Hold hold;
  Var held = e_.new_var(), fresh = e_.new_var();
  e_.push_async(hold.operation(), {.writes = {held}});
  e_.wait(fresh);
  EXPECT_TRUE(e_.wait(fresh, 0));
  hold.release();
  e_.wait(held);
}

TEST_P(Contract, WaitIgnoresPendingReadersButNotWriters) {
  Hold reading, writing;
  Var v = e_.new_var();
  int value = 0;
  e_.push([&] { value = 1; }, {.writes = {v}});
  e_.push_async(reading.operation(), {.reads = {v}});
  e_.wait(v);
  EXPECT_EQ(1, value);

  e_.push_async(writing.operation(), {.writes = {v}});  // waits for the reader
  EXPECT_FALSE(e_.wait(v, 1));
  reading.release();
  EXPECT_FALSE(e_.wait(v, 1));
  writing.release();
  e_.wait(v);
  EXPECT_TRUE(e_.wait(v, 0));
}

TEST_P(Contract, WaitSeesTheVersionOfItsCall) {
  Hold second;
  Var v = e_.new_var();
  int value = 0;
  e_.push([&] { value = 1; }, {.writes = {v}});
  e_.wait(v);
  e_.push_async(second.operation(), {.writes = {v}});
  EXPECT_EQ(1, value);
  EXPECT_FALSE(e_.wait(v, 0));
  second.release();
  e_.wait_all();
}

TEST_P(Contract, WaitAllWaitsForAllAndKnowsALimit) {
  Hold hold;
  Var a = e_.new_var(), b = e_.new_var();
  std::atomic<int> n{0};
  e_.wait_all();
  EXPECT_TRUE(e_.wait_all(0));
  e_.push_async(hold.operation(), {.writes = {a}});
  for (int i = 0; i < 10; ++i) e_.push([&] { ++n; }, {.reads = {a}});
  for (int i = 0; i < 10; ++i) e_.push([&] { ++n; }, {.updates = {b}});
  EXPECT_FALSE(e_.wait_all(1));
  hold.release();
  e_.wait_all();
  EXPECT_EQ(20, n.load());
  const EngineStats stats = e_.stats();
  EXPECT_EQ(21u, stats.pushed);
  EXPECT_EQ(21u, stats.completed);
  EXPECT_EQ(0u, stats.in_flight);
  EXPECT_EQ(0u, stats.failed + stats.skipped);
}

TEST_P(Contract, DeletionComesAfterTheLastUse) {
  Hold hold;
  Var v = e_.new_var();
  const uint64_t vars = e_.stats().vars;
  int n = 0;
  e_.push_async(hold.operation(), {.writes = {v}});
  e_.push([&] { ++n; }, {.updates = {v}});
  e_.push([&] { ++n; }, {.reads = {v}});
  e_.delete_var(v);
  EXPECT_EQ(vars, e_.stats().vars);
  hold.release();
  e_.wait_all();
  EXPECT_EQ(2, n);
  EXPECT_EQ(vars - 1, e_.stats().vars);
}

TEST_P(Contract, AHandleEndsWithItsVariable) {
  Var v = e_.new_var(), w = e_.new_var();
  e_.delete_var(v);
  error_of<InvalidHandle>([&] { e_.push([] {}, {.reads = {v}}); });
  error_of<InvalidHandle>([&] { e_.push([] {}, {.reads = {w}, .writes = {v}}); });
  error_of<InvalidHandle>([&] { e_.push([] {}, {.reads = {w, w, w, w, w}, .updates = {w, v}}); });
  error_of<InvalidHandle>([&] { e_.wait(v); });
  error_of<InvalidHandle>([&] { e_.wait(v, 0); });
  error_of<InvalidHandle>([&] { e_.recover(v); });
  error_of<InvalidHandle>([&] { e_.delete_var(v); });
  // The variable's block may be reused; the old handle stays invalid.
  for (int i = 0; i < 2000; ++i) {
    Var fresh = e_.new_var();
    EXPECT_NE(v, fresh);
    e_.delete_var(fresh);
  }
  error_of<InvalidHandle>([&] { e_.push([] {}, {.reads = {v}}); });
  // The failed pushes left the other variables they named untouched.
  e_.push([] {}, {.updates = {w}});
  e_.wait(w);
  e_.delete_var(w);
}

TEST_P(Contract, NullAndForeignHandlesAreRefused) {
  Engine other(GetParam().options);
  Var mine = e_.new_var(), theirs = other.new_var();
  for (const Var& v : {Var{}, theirs}) {
    error_of<InvalidHandle>([&] { e_.push([] {}, {.reads = {mine}, .writes = {v}}); });
    error_of<InvalidHandle>([&] { e_.push_async([](RunContext, Completion) {}, {.updates = {v}}); });
    error_of<InvalidHandle>([&] { e_.wait(v); });
    error_of<InvalidHandle>([&] { e_.recover(v); });
  }
  error_of<InvalidHandle>([&] { e_.delete_var(theirs); });
  e_.delete_var(Var{});
  e_.push([] {}, {.updates = {mine}});
  e_.wait(mine);
  other.wait(theirs);
}

// Each operation of the chain pushes the next one, so the test cannot know when the chain ends except by
// counting.
TEST_P(Contract, OperationsMayPush) {
  Var v = e_.new_var();
  std::atomic<int> n{0};
  std::function<void()> link = [&] {
    if (++n < 500) e_.push(link, {.updates = {v}, .name = "link"});
  };
  e_.push(link, {.updates = {v}});
  while (n.load() < 500) e_.wait_all();
  EXPECT_EQ(500, n.load());
}

TEST_P(Contract, AnOperationMayDeleteAndMakeVariables) {
  Var v = e_.new_var();
  std::atomic<int> n{0};
  for (int i = 0; i < 50; ++i) {
    e_.push(
        [&] {
          Var inner = e_.new_var();
          e_.push([&] { ++n; }, {.writes = {inner}});
          e_.delete_var(inner);
        },
        {.updates = {v}});
  }
  while (n.load() < 50) e_.wait_all();
  e_.wait_all();
  EXPECT_EQ(1u, e_.stats().vars);
}

TEST_P(Contract, EnginesAreIndependent) {
  Engine other(GetParam().options);
  Var a = e_.new_var(), b = other.new_var();
  Hold hold;
  std::atomic<int> n{0};
  e_.push_async(hold.operation(), {.writes = {a}});
  for (int i = 0; i < 100; ++i) other.push([&] { ++n; }, {.updates = {b}});
  other.wait_all();
  EXPECT_EQ(100, n.load());
  e_.push([&] { other.push([&] { ++n; }, {.updates = {b}}); }, {.updates = {a}});
  hold.release();
  e_.wait_all();
  other.wait_all();
  EXPECT_EQ(101, n.load());
}

TEST_P(Contract, PushersFromManyThreadsFormNoCycle) {
  Var a = e_.new_var(), b = e_.new_var();
  int value = 0;
  std::vector<std::thread> pushers;
  for (int t = 0; t < 4; ++t) {
    pushers.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        if (t % 2 == 0) {
          e_.push([&] { ++value; }, {.updates = {a, b}});
        } else {
          e_.push([&] { ++value; }, {.updates = {b, a}});
        }
      }
    });
  }
  for (std::thread& t : pushers) t.join();
  e_.wait_all();
  EXPECT_EQ(800, value);
}

}  // namespace
}  // namespace mx
