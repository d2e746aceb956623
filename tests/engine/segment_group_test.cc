// Segments with asynchronous operations, priorities, communication lanes and devices. From outside, a replay
// is one operation; its nodes behave like other operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/random_program.h"
#include "tests/support/stream_ops.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Gate;
using test::Hold;
using test::Step;

using SegmentGroups = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, SegmentGroups, ::testing::ValuesIn(test::all_cases()), test::CaseName());

// The modes in which bodies may block and device work may be held back.
class SegmentGroupsOnWorkers : public test::EngineTest {};
INSTANTIATE_TEST_SUITE_P(Modes, SegmentGroupsOnWorkers, ::testing::ValuesIn(test::worker_cases()),
                         test::CaseName());

template <class Condition>
void until(Engine& e, Condition&& condition) {
  while (!condition()) {
    try {
      e.wait_all(1);
    } catch (const Error&) {  // tests that check for errors expect this one
    }
  }
}

// --- From outside, a replay is one operation.

TEST_P(SegmentGroups, PushesOfOthersNeverComeBetweenItsNodes) {
  Var v = e_.new_var(), w = e_.new_var();
  bool inside = false;
  int a = 0, b = 0, torn = 0, intruders = 0;
  Segment s = e_.record([&] {
    e_.push([&] { inside = true; }, {.updates = {v}, .priority = 1});
    e_.push([&] { ++a; }, {.reads = {v}, .updates = {w}, .lane = StreamKind::comm});
    e_.push_async([&](RunContext, Completion done) { ++b, done(); }, {.updates = {w}});
    e_.push([&] { inside = false; }, {.reads = {w}, .updates = {v}, .priority = -1});
  });
  EXPECT_EQ(4u, s.operations());
  EXPECT_EQ(4u, s.edges());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < test::scaled_steps(1000); ++i) {
        if (t == 0) {
          s.replay();
          continue;
        }
        e_.push([&] { intruders += inside; }, {.updates = {v}, .priority = t == 1 ? 2 : 0});
        e_.push([&] { torn += a != b; }, {.updates = {w}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  e_.wait_all();
  EXPECT_EQ(0, intruders);
  EXPECT_EQ(0, torn);
  EXPECT_EQ(test::scaled_steps(1000), a);
  EXPECT_EQ(a, b);
  const EngineStats stats = e_.stats();
  EXPECT_EQ(stats.pushed, stats.completed);
  EXPECT_EQ(5 * a, static_cast<int>(stats.pushed));  // a replay counts as one operation
}

TEST_P(SegmentGroups, WaitingWithALimitEndsWithTheWholeReplay) {
  Hold hold;
  Var first = e_.new_var(), last = e_.new_var();
  std::atomic<bool> ran{false};
  Segment s = e_.record([&] {
    e_.push([&] { ran = true; }, {.writes = {first}});
    e_.push_async(hold.operation(), {.writes = {last}});
  });
  s.replay();
  until(e_, [&] { return ran.load(); });
  EXPECT_FALSE(e_.wait(first, 0));  // its node has ended, but the replay has not
  EXPECT_FALSE(e_.wait(last, 1));
  EXPECT_FALSE(e_.wait_all(1));
  hold.release();
  e_.wait(first);
  EXPECT_TRUE(e_.wait(last, 60'000));
  EXPECT_TRUE(e_.wait_all(60'000));
}

TEST_P(SegmentGroups, MayBeDestroyedWhilePending) {
  auto counter = std::make_shared<std::atomic<int>>(0);
  Hold hold;
  Var gate = e_.new_var(), v = e_.new_var();
  e_.push_async(hold.operation(), {.writes = {gate}});
  {
    Segment s = e_.record([&] {
      e_.push([counter] { ++*counter; }, {.reads = {gate}, .priority = 1});
      e_.push_async([counter](RunContext, Completion done) { ++*counter, done(); }, {.reads = {gate}});
      e_.push([counter](RunContext) { ++*counter; }, {.reads = {gate}, .writes = {v}, .context = virt(0)});
    });
    for (int i = 0; i < 10; ++i) s.replay();
  }
  EXPECT_GT(counter.use_count(), 1);
  hold.release();
  e_.wait_all();
  EXPECT_EQ(30, counter->load());
  EXPECT_EQ(1, counter.use_count());
  e_.delete_var(gate);
  e_.delete_var(v);
  e_.wait_all();
  EXPECT_EQ(0u, e_.stats().vars);
}

TEST_P(SegmentGroups, AnEngineThatEndsRunsWhatIsPending) {
  int n = 0;
  {
    Engine e(GetParam().options);
    Var v = e.new_var();
    Segment s = e.record([&] {
      e.push([&] { ++n; }, {.updates = {v}, .priority = 1});
      e.push_async([&](RunContext, Completion done) { ++n, done(); }, {.updates = {v}});
    });
    for (int i = 0; i < 100; ++i) s.replay();
  }
  EXPECT_EQ(200, n);
}

TEST_P(SegmentGroups, AReplayInsideARecordingIsRecorded) {
  Var v = e_.new_var();
  int value = 0;
  Segment inner = e_.record([&] {
    e_.push([&] { value *= 2; }, {.updates = {v}, .priority = 1});
    e_.push_async([&](RunContext, Completion done) { ++value, done(); }, {.updates = {v}});
  });
  Segment outer = e_.record([&] {
    e_.push([&] { ++value; }, {.updates = {v}});
    inner.replay();
  });
  EXPECT_EQ(3u, outer.operations());
  EXPECT_EQ(0, value);
  outer.replay();
  inner.replay();
  outer.replay();
  e_.wait(v);
  EXPECT_EQ(((3 * 2 + 1) + 1) * 2 + 1, value);
}

// --- The nodes behave like operations.

TEST_P(SegmentGroups, OperationsOfManyVariables) {
  std::vector<Var> vars(23);
  for (Var& v : vars) v = e_.new_var();
  int n = 0;
  Segment s = e_.record([&] {
    e_.push([&] { n = 3 * n + 1; }, {.updates = vars, .priority = 1});
    e_.push_async([&](RunContext, Completion done) { n %= 1000, done(); }, {.updates = vars});
    for (Var v : vars) e_.push([] {}, {.reads = {v}});
  });
  EXPECT_EQ(24u, s.edges());
  int expected = 0;
  for (int i = 0; i < 20; ++i) {
    s.replay();
    expected = (3 * expected + 1) % 1000;
  }
  e_.wait_all();
  EXPECT_EQ(expected, n);
}

TEST(SegmentGroupOrder, UrgentNodesComeFirst) {
  Engine e(test::threaded_case(1).options);
  Hold hold;
  Var gate = e.new_var();
  std::vector<int> order;
  Segment s = e.record([&] {
    for (int i = 0; i < 50; ++i) {
      e.push([&order, i] { order.push_back(i % 5 - 2); }, {.reads = {gate}, .priority = i % 5 - 2});
    }
  });
  e.push_async(hold.operation(), {.writes = {gate}});
  s.replay(1);  // the priority of nodes that have none of their own
  hold.release();
  e.wait_all();
  for (int& priority : order) priority = priority == 0 ? 1 : priority;
  EXPECT_EQ(50u, order.size());
  EXPECT_TRUE(std::is_sorted(order.rbegin(), order.rend()));
}

TEST(SegmentGroupOrder, UrgentAndCommunicatingNodesOvertakeAThousandComputations) {
  Engine e(test::threaded_case(1).options);
  Gate gate;
  Var held = e.new_var();
  std::vector<int> order;
  std::atomic<int> computed{0}, before_comm{-1};
  Segment s = e.record([&] {
    e.push([&] { before_comm = computed.load(); }, {.lane = StreamKind::comm});
    e.push([&] { order.push_back(1); }, {.priority = 1});
    e.push([&] { order.push_back(2); }, {});
  });
  e.push([&] { gate.pass(); }, {.writes = {held}});
  gate.entered();
  for (int i = 0; i < 1000; ++i) {
    e.push([&] {
      ++computed;
      if (order.size() < 5) order.push_back(0);
    });
  }
  s.replay();
  // The thread of the lane may start late; the computations would then have run before its node.
  while (before_comm < 0) std::this_thread::yield();
  gate.open();
  e.wait_all();
  EXPECT_EQ(0, before_comm);
  ASSERT_GE(order.size(), 2u);
  EXPECT_EQ(1, order[0]);
  EXPECT_EQ(0, order[1]);
}

TEST_P(SegmentGroupsOnWorkers, IndependentAsynchronousNodesAreOutstandingAtOnce) {
  Var v = e_.new_var(), w = e_.new_var(), sum = e_.new_var();
  Completion tokens[2];
  int ended = 0;
  auto begun = std::make_unique<std::latch>(2);
  Segment s = e_.record([&] {
    for (int i = 0; i < 2; ++i) {
      e_.push_async(
          [&, i](RunContext, Completion done) {
            tokens[i] = std::move(done);
            begun->count_down();
          },
          {.writes = {i == 0 ? v : w}});
    }
    e_.push([&] { ++ended; }, {.reads = {v, w}, .updates = {sum}});
  });
  for (int i = 1; i <= 20; ++i) {
    s.replay();
    begun->wait();
    begun = std::make_unique<std::latch>(2);
    EXPECT_FALSE(e_.wait(v, 0));
    tokens[i % 2].done();
    tokens[1 - i % 2].done();
    e_.wait(sum);
    EXPECT_EQ(i, ended);
  }
}

TEST(SegmentGroupOrder, NodesMeetInsideAReplay) {
  Engine e(test::threaded_case(2).options);
  Var v = e.new_var(), w = e.new_var();
  std::barrier meeting(2);
  Segment s = e.record([&] {
    e.push([] {}, {.writes = {v, w}, .priority = 3});
    for (int i = 0; i < 3; ++i) {
      e.push([&] { meeting.arrive_and_wait(); }, {.updates = {v}, .priority = 1});
      e.push([&] { meeting.arrive_and_wait(); }, {.updates = {w}});
    }
  });
  for (int i = 0; i < 50; ++i) s.replay();
  e.wait_all();
}

// If the failure kept one of two operations that wait for each other from running, the other would wait
// forever.
TEST(SegmentGroupOrder, NodesMeetAlthoughAnotherOneFailsMeanwhile) {
  Engine e(test::threaded_case(3).options);
  Var u = e.new_var(), v = e.new_var(), w = e.new_var();
  std::barrier meeting(2);
  std::latch* met = nullptr;
  int behind = 0;
  Segment s = e.record([&] {
    e.push([&] { meeting.arrive_and_wait(); }, {.updates = {v}, .priority = 1});
    e.push(
        [&] {
          met->count_down();
          throw std::runtime_error("broken");
        },
        {.updates = {u}, .name = "bad"});
    e.push([&] { ++behind; }, {.updates = {u}});
    e.push([&] { met->wait(); }, {.updates = {w}});
    e.push([&] { meeting.arrive_and_wait(); }, {.updates = {w}});
  });
  for (int i = 0; i < 20; ++i) {
    std::latch latch(1);
    met = &latch;
    e.push([] {}, {.writes = {u, v, w}});
    s.replay();
    EXPECT_TRUE(contains(error_of<Error>([&] { e.wait(v); }), "[bad]"));
    error_of<Error>([&] { e.wait_all(); });
  }
  EXPECT_EQ(0, behind);
}

TEST(SegmentGroupCheck, ANodeIsCheckedByItsOwnLinks) {
  Engine e(test::mode_case(EngineMode::check, "check").options);
  Var v = e.new_var(), w = e.new_var();
  bool bad = false;
  Segment s = e.record([&] {
    e.push([&](RunContext run) { run.write(v); }, {.writes = {v}, .priority = 1});
    e.push([&](RunContext run) { run.read(v), bad ? run.read(w) : run.write(w); },
           {.reads = {v}, .writes = {w}, .name = "nosy"});
  });
  s.replay();
  e.wait(w);
  bad = true;
  s.replay();
  EXPECT_TRUE(contains(error_of<AccessError>([&] { e.wait(w); }), "[nosy]"));
  error_of<AccessError>([&] { e.wait_all(); });
}

TEST_P(SegmentGroups, WaitingInsideANodeThrows) {
  Var v = e_.new_var();
  Segment s =
      e_.record([&] { e_.push([&] { e_.wait(v); }, {.writes = {v}, .priority = 1, .name = "self"}); });
  s.replay();
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { e_.wait(v); }), "inside 'self'"));
  error_of<InvalidState>([&] { e_.wait_all(); });
}

TEST(SegmentGroupProfile, NodesAreInTheHistoryInTheOrderOfTheProgram) {
  EngineOptions options = test::threaded_case(2).options;
  options.history = 20;
  Engine e(options);
  Hold hold;
  Var v = e.new_var();
  Segment s = e.record([&] {
    e.push([] {}, {.updates = {v}, .priority = 1, .name = "first"});
    e.push([] {}, {.updates = {v}, .name = "second"});
  });
  e.push_async(hold.operation(), {.writes = {v}, .name = "before"});
  s.replay();
  s.replay();
  e.push([] {}, {.reads = {v}, .name = "after"});
  EXPECT_FALSE(e.wait_all(0));  // all replays are queued, and no node has run
  hold.release();
  e.wait_all();
  std::ostringstream out;
  e.write_dot(out);
  const std::string dot = out.str();
  EXPECT_EQ(1, std::count(dot.begin(), dot.end(), '{'));
  std::string chain;
  for (const char* name : {"before", "first", "second", "first", "second", "after"}) {
    const size_t at = dot.find(name, chain.empty() ? 0 : std::stoul(chain));
    ASSERT_NE(std::string::npos, at) << dot;
    chain = std::to_string(at + 1);
  }
  for (int id = 1; id <= 5; ++id) {
    const std::string edge = "o" + std::to_string(id) + " -> o" + std::to_string(id + 1) + ";";
    EXPECT_TRUE(contains(dot, edge)) << edge << '\n' << dot;
  }
  EXPECT_FALSE(contains(dot, "o1 -> o3")) << dot;
}

TEST(SegmentGroupProfile, TheWatchdogNamesANodeThatDoesNotEnd) {
  test::LogCapture log;
  EngineOptions options = test::threaded_case(2).options;
  options.watchdog_ms = 5;
  Engine e(options);
  Hold hold;
  Segment s = e.record([&] { e.push_async(hold.operation(), {.name = "slow node"}); });
  s.replay();
  EXPECT_TRUE(contains(log.wait_for("[slow node]"), "segment_group_test.cc"));
  hold.release();
  e.wait_all();
}

// --- Values.

std::vector<Var> handles(const std::vector<Var>& vars, const std::vector<int>& ids) {
  std::vector<Var> out;
  for (int v : ids) out.push_back(vars[static_cast<size_t>(v)]);
  return out;
}

// Pushes a step on one of the CPU's two lanes or the two devices; some steps are asynchronous. A step that
// may fail does so only if `fails` is set.
void push_step(Engine& e, const Step& step, const std::vector<Var>& vars, std::vector<uint64_t>& values,
               const bool& fails) {
  const std::vector<Var> reads = handles(vars, step.reads), writes = handles(vars, step.writes),
                         updates = handles(vars, step.updates);
  PushOptions options{
      .reads = reads, .writes = writes, .updates = updates, .priority = step.priority, .name = "step"};
  if (step.place == 1) options.lane = StreamKind::comm;
  if (step.place >= 2) options.context = virt(step.place - 2);
  const auto body = [&step, &values, &fails](RunContext run) {
    const auto work = [&step, &values, failing = fails && step.fails] {
      if (!failing) return test::compute(step, values);
      for (const auto* list : {&step.writes, &step.updates}) {
        for (int v : *list) values[static_cast<size_t>(v)] = 0xdead;
      }
      throw std::runtime_error("<step " + std::to_string(step.id) + ">");
    };
    if (run.stream() == nullptr || (fails && step.fails && step.id % 2 == 0)) return work();
    run.stream()->submit([work](KernelContext&) { work(); });
  };
  if (step.id % 5 == 0) {
    e.push_async([body](RunContext run, Completion done) { body(run), done(); }, options);
  } else {
    e.push(body, options);
  }
}

TEST_P(SegmentGroups, ReplaysEqualExecutionOverLanesAndDevices) {
  for (int d = 0; d < 2; ++d) virtual_device(d).set_delay(3, 0, 20);
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const test::RandomProgram program = test::make_random_program({.seed = seed,
                                                                   .steps = seed <= 2 ? 400 : 30,
                                                                   .live_vars = seed % 2 == 0 ? 20 : 5,
                                                                   .places = 4,
                                                                   .failures = false});
    std::vector<uint64_t> expected(program.vars, 0), values(program.vars, 0);
    std::vector<Var> vars(program.vars);
    for (Var& v : vars) v = e_.new_var();
    const bool fails = false;
    Segment segment = e_.record([&] {
      for (const Step& step : program.steps) {
        if (step.kind == Step::Kind::op) push_step(e_, step, vars, values, fails);
      }
    });
    for (int i = 0; i < 8; ++i) {
      for (const Step& step : program.steps) {
        if (step.kind == Step::Kind::op) test::compute(step, expected);
      }
      segment.replay();
      const size_t looked_at = static_cast<size_t>(i) % program.vars;
      if (i % 3 == 0) {
        e_.wait(vars[looked_at]);
        EXPECT_EQ(expected[looked_at], values[looked_at]);
      }
    }
    e_.wait_all();
    EXPECT_EQ(expected, values);
    for (Var v : vars) e_.delete_var(v);
  }
  e_.wait_all();
  for (int d = 0; d < 2; ++d) virtual_device(d).set_delay(0, 0, 0);
}

// For every failure, a version that may come from a failed node is poisoned, and a version that is not
// poisoned has the right value.
TEST_P(SegmentGroups, WhatAFailedReplayLeavesIsPoisonedOrRight) {
  for (uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    test::RandomProgram program = test::make_random_program(
        {.seed = seed, .steps = 25, .live_vars = 8, .places = 4, .failures = false});
    std::vector<Step> steps;
    for (const Step& step : program.steps) {
      if (step.kind == Step::Kind::op) steps.push_back(step);
    }
    steps[seed % steps.size()].fails = true;
    if (seed % 2 == 0) steps[seed * 7 % steps.size()].fails = true;
    std::vector<uint64_t> values(program.vars, 0);
    std::vector<Var> vars(program.vars);
    for (Var& v : vars) v = e_.new_var();
    bool fails = true;
    Segment segment = e_.record([&] {
      for (const Step& step : steps) push_step(e_, step, vars, values, fails);
    });
    std::set<int> written;
    for (const Step& step : steps) {
      written.insert(step.writes.begin(), step.writes.end());
      written.insert(step.updates.begin(), step.updates.end());
    }
    for (int round = 0; round < 6 && !HasFailure(); ++round) {
      test::SerialInterpreter oracle(program.vars);
      for (int v = 0; v < static_cast<int>(program.vars); ++v) {
        Step set;
        set.kind = Step::Kind::create;
        set.var = v;
        oracle.run(set);
        set.kind = Step::Kind::op;
        set.id = 1000 * round + v;
        set.writes = {v};
        oracle.run(set);
        e_.push([set, &values] { test::compute(set, values); }, {.writes = {vars[static_cast<size_t>(v)]}});
      }
      e_.wait_all();
      fails = round % 3 != 2;
      for (Step step : steps) {
        step.fails = step.fails && fails;
        oracle.run(step);
      }
      segment.replay();
      int poisoned = 0;
      for (int v = 0; v < static_cast<int>(program.vars); ++v) {
        const size_t i = static_cast<size_t>(v);
        std::string error;
        try {
          e_.wait(vars[i]);
        } catch (const OperationError& failure) {
          error = failure.what();
        }
        if (error.empty()) {
          EXPECT_TRUE(oracle.state(v).poison.empty()) << v;
          EXPECT_EQ(oracle.values()[i], values[i]) << v;
        } else {
          ++poisoned;
          EXPECT_TRUE(contains(error, "[step]") && contains(error, "<step ")) << error;
          EXPECT_TRUE(fails && written.contains(v)) << v;
        }
      }
      EXPECT_TRUE(fails || poisoned == 0) << poisoned;
      try {
        e_.wait_all();
        EXPECT_FALSE(fails);
      } catch (const OperationError&) {
        EXPECT_TRUE(fails);
      }
      EXPECT_EQ(0u, e_.stats().in_flight);
    }
    for (Var v : vars) e_.delete_var(v);
    e_.wait_all();
  }
}

}  // namespace
}  // namespace mx
