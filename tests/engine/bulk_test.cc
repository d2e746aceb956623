// Bulk scopes: pushes that are submitted as one operation have the same effect as separate pushes.
#include "engine/bulk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/random_program.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Hold;
using test::Step;

using Bulk = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Bulk, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Bulk, PushesBecomeOneOperation) {
  Var v = e_.new_var();
  std::vector<int> order;
  {
    BulkScope bulk(e_);
    for (int i = 0; i < 10; ++i) e_.push([&order, i] { order.push_back(i); }, {.updates = {v}});
    EXPECT_EQ(0u, e_.stats().pushed);
  }
  EXPECT_EQ(1u, e_.stats().pushed);
  e_.wait(v);
  EXPECT_EQ((std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), order);
}

TEST_P(Bulk, MaxOpsBoundsAnOperation) {
  Var v = e_.new_var();
  int n = 0;
  {
    BulkScope bulk(e_, {.max_ops = 4});
    for (int i = 0; i < 11; ++i) e_.push([&] { ++n; }, {.updates = {v}});
    EXPECT_EQ(2u, e_.stats().pushed);
    bulk.flush();
    EXPECT_EQ(3u, e_.stats().pushed);
    bulk.flush();
    EXPECT_EQ(3u, e_.stats().pushed);
  }
  e_.wait(v);
  EXPECT_EQ(11, n);
  error_of<InvalidArgument>([&] { BulkScope none(e_, {.max_ops = 0}); });
}

// Programs with priorities, lanes, asynchronous operations and deletions give the serial result.
TEST_P(Bulk, EqualsSerialExecution) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const test::RandomProgram program = test::make_random_program(
        {.seed = seed, .steps = test::scaled_steps(600), .live_vars = 20, .places = 2, .failures = false});
    std::vector<uint64_t> expected(program.vars, 0), values(program.vars, 0);
    for (const Step& step : program.steps) {
      if (step.kind == Step::Kind::op) test::compute(step, expected);
    }
    std::vector<Var> vars(program.vars);
    for (Var& v : vars) v = e_.new_var();
    const auto handles = [&](const std::vector<int>& ids) {
      std::vector<Var> out;
      for (int v : ids) out.push_back(vars[static_cast<size_t>(v)]);
      return out;
    };
    {
      BulkScope bulk(e_, {.max_ops = static_cast<int>(seed * 7)});
      for (const Step& step : program.steps) {
        if (step.kind != Step::Kind::op) continue;
        const std::vector<Var> reads = handles(step.reads), writes = handles(step.writes),
                               updates = handles(step.updates);
        PushOptions options{.reads = reads, .writes = writes, .updates = updates};
        if (seed % 2 == 0) {
          options.priority = step.priority;
          if (step.place == 1) options.lane = StreamKind::comm;
        }
        if (seed % 2 == 0 && step.id % 7 == 0) {
          e_.push_async(
              [&, &step = step](RunContext, Completion done) {
                test::compute(step, values);
                done();
              },
              options);
        } else {
          e_.push([&, &step = step] { test::compute(step, values); }, options);
        }
        if (step.id % 50 == 0) {
          const Var fresh = e_.new_var();
          e_.push([] {}, {.writes = {fresh}});
          e_.delete_var(fresh);
        }
      }
    }
    e_.wait_all();
    EXPECT_EQ(expected, values);
    for (Var v : vars) e_.delete_var(v);
    e_.wait_all();
    EXPECT_EQ(0u, e_.stats().vars);
  }
}

TEST_P(Bulk, WaitsSeeWhatWasPushedBefore) {
  Var v = e_.new_var();
  int n = 0;
  BulkScope bulk(e_, {.max_ops = 1000});
  for (int round = 1; round <= 20; ++round) {
    e_.push([&] { ++n; }, {.updates = {v}});
    e_.push([&] { ++n; }, {.updates = {v}});
    round % 2 ? e_.wait(v) : e_.wait_all();
    EXPECT_EQ(2 * round, n);
  }
  Engine other(GetParam().options);
  e_.push([&] { ++n; }, {.updates = {v}});
  e_.push([&] { ++n; }, {.updates = {v}});
  other.wait_all();  // a wait on any engine submits the scope, because its operations may depend on anything
  EXPECT_EQ(21u, e_.stats().pushed);
  e_.wait_all();  // the operations capture this function's variables
}

TEST_P(Bulk, AFailurePoisonsTheUnionAndNamesItsOperation) {
  Var a = e_.new_var(), b = e_.new_var(), c = e_.new_var();
  int ran = 0;
  int line = 0;
  {
    BulkScope bulk(e_);
    e_.push([&] { ++ran; }, {.writes = {a}});
    line = __LINE__ + 1;
    e_.push([] { throw OutOfMemory("the cause"); }, {.writes = {b}, .name = "culprit"});
    e_.push([&] { ++ran; }, {.reads = {a}, .writes = {c}});
  }
  for (Var v : {a, b, c}) {
    const std::string text = error_of<OutOfMemory>([&] { e_.wait(v); });
    EXPECT_TRUE(contains(text, "[culprit] the cause")) << text;
    EXPECT_TRUE(contains(text, "bulk_test.cc:" + std::to_string(line))) << text;
  }
  EXPECT_EQ(1, ran);
  error_of<OutOfMemory>([&] { e_.wait_all(); });
  e_.push([&] { ++ran; }, {.writes = {a, b, c}});
  e_.wait(c);
  EXPECT_EQ(2, ran);
}

TEST_P(Bulk, APoisonedInputSkipsAllAndWhatIsReplacedFirstIsNone) {
  Var bad = e_.new_var(), out = e_.new_var();
  int ran = 0;
  e_.push([] { throw 1; }, {.writes = {bad}, .name = "culprit"});
  {
    BulkScope bulk(e_);
    e_.push([&] { ++ran; }, {.updates = {out}});
    e_.push([&] { ++ran; }, {.reads = {bad}});
  }
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(out); }), "culprit"));
  e_.recover(out);
  e_.wait(out);
  EXPECT_EQ(0, ran);
  {
    BulkScope bulk(e_);
    e_.push([&] { ++ran; }, {.writes = {bad}});
    e_.push([&] { ++ran; }, {.reads = {bad}, .updates = {out}});
  }
  e_.wait(out);
  e_.wait(bad);
  EXPECT_EQ(2, ran);
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Bulk, FunctionsAreDestroyedHoweverTheyEnd) {
  const auto life = std::make_shared<int>(0);
  Var v = e_.new_var();
  const auto push_some = [&](bool failing) {
    BulkScope bulk(e_);
    e_.push([life] { ++*life; }, {.updates = {v}});
    e_.push(
        [life, failing] {
          if (failing) throw 1;
        },
        {.updates = {v}});
    e_.push([life] { ++*life; }, {.updates = {v}});
  };
  push_some(false);
  push_some(true);
  push_some(false);  // skipped
  error_of<OperationError>([&] { e_.wait_all(); });
  e_.pause();
  push_some(false);
  e_.cancel();
  e_.resume();
  EXPECT_THROW(e_.wait_all(), Cancelled);
  EXPECT_EQ(3, *life);
  EXPECT_EQ(1, life.use_count());
}

TEST_P(Bulk, OperationsOfManyVariablesAndBytesJoin) {
  std::vector<Var> vars(40);
  for (Var& v : vars) v = e_.new_var();
  int n = 0;
  for (int round = 0; round < 50; ++round) {
    BulkScope bulk(e_);
    for (size_t i = 0; i + 10 <= vars.size(); i += 3) {
      const std::vector<Var> some(vars.begin() + static_cast<std::ptrdiff_t>(i),
                                  vars.begin() + static_cast<std::ptrdiff_t>(i) + 10);
      e_.push([&] { ++n; }, {.updates = some, .bytes = 100});
    }
  }
  e_.wait_all();
  EXPECT_EQ(550, n);
  EXPECT_EQ(50u, e_.stats().pushed);
  EXPECT_EQ(0u, e_.stats().bytes_in_flight);
  for (Var v : vars) e_.delete_var(v);
  e_.wait_all();
  EXPECT_EQ(0u, e_.stats().vars);
}

TEST_P(Bulk, ScopesNestAndLeaveOtherEnginesAlone) {
  Engine other(GetParam().options);
  Var v = e_.new_var(), w = other.new_var();
  std::vector<int> order;
  {
    BulkScope outer(e_);
    e_.push([&] { order.push_back(1); }, {.updates = {v}});
    e_.push([&] { order.push_back(2); }, {.updates = {v}});
    {
      BulkScope inner(other);
      EXPECT_EQ(1u, e_.stats().pushed);
      e_.push([&] { order.push_back(3); }, {.updates = {v}});
      EXPECT_EQ(2u, e_.stats().pushed);
      other.push([] {}, {.updates = {w}});
      other.push([] {}, {.updates = {w}});
      EXPECT_EQ(0u, other.stats().pushed);
    }
    EXPECT_EQ(1u, other.stats().pushed);
    e_.push([&] { order.push_back(4); }, {.updates = {v}});
    e_.push([&] { order.push_back(5); }, {.updates = {v}});
    EXPECT_EQ(2u, e_.stats().pushed);
  }
  e_.wait(v);
  EXPECT_EQ((std::vector<int>{1, 2, 3, 4, 5}), order);
}

// The operations inside a bulk operation count as in flight.
TEST(BulkRunAhead, IsLimitedByTheOperationsCollected) {
  EngineOptions options = test::threaded_case(1).options;
  options.max_ops_in_flight = 200;
  Engine e(options);
  Var v = e.new_var();
  std::atomic<int> ran{0};
  int most = 0;
  {
    BulkScope bulk(e, {.max_ops = 50});
    for (int i = 0; i < 20'000; ++i) {
      e.push([&] { ++ran; }, {.updates = {v}});
      most = std::max(most, i + 1 - ran.load());
    }
  }
  e.wait_all();
  EXPECT_EQ(20'000, ran.load());
  EXPECT_LE(most, 200 + 2 * 50 + 1);
}

TEST_P(Bulk, RecordingIsUnaffected) {
  Var v = e_.new_var();
  int n = 0;
  Segment inside, outside;
  {
    BulkScope bulk(e_);
    e_.push([&] { n += 1; }, {.updates = {v}});
    e_.push([&] { n *= 10; }, {.updates = {v}});
    inside = e_.record([&] {
      BulkScope nothing(e_);
      e_.push([&] { n += 2; }, {.updates = {v}});
      e_.push([&] { n *= 10; }, {.updates = {v}});
    });
    EXPECT_EQ(2u, inside.operations());
    e_.push([&] { n += 1; }, {.updates = {v}});
    inside.replay();
    e_.push([&] { n += 5; }, {.updates = {v}});
  }
  e_.wait(v);
  EXPECT_EQ(((1 * 10 + 1) + 2) * 10 + 5, n);
}

// A waiter that has a scope open runs an operation of another pusher. Pushes of that operation must not join
// the waiter's scope.
TEST_P(Bulk, OperationsThatTheThreadHelpsWithPushByThemselves) {
  Var v = e_.new_var(), w = e_.new_var();
  std::atomic<int> n{0};
  BulkScope bulk(e_);
  for (int i = 0; i < 200; ++i) {
    e_.push([&] { e_.push([&] { ++n; }, {.updates = {w}}); }, {.updates = {v}});
    e_.wait(v);
    std::thread([&] {
      if (e_.options().mode != EngineMode::fuzz) {
        while (n.load() == i) std::this_thread::yield();
      }
    }).join();
    e_.wait(w);
    EXPECT_EQ(i + 1, n.load());
  }
}

TEST_P(Bulk, InsideAnOperation) {
  Var v = e_.new_var(), w = e_.new_var();
  int n = 0;
  e_.push(
      [&] {
        BulkScope bulk(e_);
        for (int i = 0; i < 100; ++i) e_.push([&] { ++n; }, {.updates = {w}});
      },
      {.updates = {v}});
  e_.wait(v);
  e_.wait(w);
  EXPECT_EQ(100, n);
  EXPECT_EQ(1u + 4u, e_.stats().pushed);
}

TEST_P(Bulk, OperationsOfADeviceJoinOnItsStream) {
  Var v = e_.new_var();
  std::vector<int> order;
  {
    BulkScope bulk(e_);
    for (int i = 0; i < 6; ++i) {
      e_.push([&order,
               i](RunContext c) { c.stream()->submit([&order, i](KernelContext&) { order.push_back(i); }); },
              {.updates = {v}, .context = virt(i < 3 ? 0 : 1)});
    }
  }
  e_.wait(v);
  EXPECT_EQ((std::vector<int>{0, 1, 2, 3, 4, 5}), order);
  EXPECT_EQ(2u, e_.stats().pushed);
}

TEST_P(Bulk, WaitingInsideNamesTheInnerOperation) {
  Var v = e_.new_var();
  std::string text;
  {
    BulkScope bulk(e_);
    e_.push([] {}, {.updates = {v}});
    e_.push([&] { text = error_of<InvalidState>([&] { e_.wait_all(); }); },
            {.updates = {v}, .name = "impatient"});
  }
  e_.wait(v);
  EXPECT_TRUE(contains(text, "impatient")) << text;
}

TEST_P(Bulk, MemoryIsReused) {
  Var v = e_.new_var();
  const auto round = [&] {
    BulkScope bulk(e_);
    for (int i = 0; i < 64; ++i) e_.push([] {}, {.updates = {v}});
  };
  for (int i = 0; i < 100; ++i) round();
  e_.wait_all();
  const uint64_t before = e_.stats().op_pool_bytes;
  for (int i = 0; i < 1000; ++i) {
    round();
    if (i % 100 == 0) e_.wait_all();
  }
  e_.wait_all();
  EXPECT_LE(e_.stats().op_pool_bytes, before + (1 << 20));
}

TEST(BulkCheckMode, InnerOperationsAreCheckedOneByOne) {
  Engine e(test::mode_case(EngineMode::check, "check").options);
  Var a = e.new_var("a"), b = e.new_var("b");
  {
    BulkScope bulk(e);
    e.push([&](RunContext c) { c.write(a); }, {.writes = {a}, .name = "honest"});
    e.push([&](RunContext c) { c.read(a); }, {.writes = {b}, .name = "liar"});
  }
  const std::string text = error_of<AccessError>([&] { e.wait(b); });
  EXPECT_TRUE(contains(text, "[liar]") && contains(text, "'a'")) << text;
  error_of<AccessError>([&] { e.wait_all(); });
}

}  // namespace
}  // namespace mx
