// Segments: a replay has the same effect as pushing the recorded operations.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/random_program.h"
#include "tests/support/spin.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Gate;
using test::Hold;
using test::Step;

using Segments = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Segments, ::testing::ValuesIn(test::all_cases()), test::CaseName());

std::vector<Var> handles(const std::vector<Var>& vars, const std::vector<int>& ids) {
  std::vector<Var> out;
  for (int v : ids) out.push_back(vars[static_cast<size_t>(v)]);
  return out;
}

// Records and replays random programs; a program is plain, or includes priorities, lanes and asynchronous
// operations.
void expect_replay_equals_execution(Engine& e, uint64_t seed, bool plain, int steps, int replays) {
  SCOPED_TRACE(seed);
  const test::RandomProgram program = test::make_random_program(
      {.seed = seed, .steps = steps, .live_vars = 20, .places = 2, .failures = false});
  std::vector<uint64_t> expected(program.vars, 0), values(program.vars, 0);
  std::vector<Var> vars(program.vars);
  for (Var& v : vars) v = e.new_var();
  Segment segment = e.record([&] {
    for (const Step& step : program.steps) {
      if (step.kind != Step::Kind::op) continue;
      const std::vector<Var> reads = handles(vars, step.reads), writes = handles(vars, step.writes),
                             updates = handles(vars, step.updates);
      PushOptions options{.reads = reads, .writes = writes, .updates = updates};
      if (!plain) {
        options.priority = step.priority;
        if (step.place == 1) options.lane = StreamKind::comm;
      }
      if (!plain && step.id % 7 == 0) {
        e.push_async(
            [&](RunContext, Completion done) {
              test::compute(step, values);
              done();
            },
            options);
      } else {
        e.push([&] { test::compute(step, values); }, options);
      }
    }
  });
  EXPECT_EQ(std::vector<uint64_t>(program.vars, 0), values);  // recording runs nothing
  EXPECT_GT(segment.operations(), 0u);
  for (int i = 0; i < replays; ++i) {
    for (const Step& step : program.steps) {
      if (step.kind == Step::Kind::op) test::compute(step, expected);
    }
    segment.replay();
    if (i % 3 != 0) continue;
    e.wait_all();
    ASSERT_EQ(expected, values) << "replay " << i;
  }
  e.wait_all();
  EXPECT_EQ(expected, values);
}

TEST_P(Segments, ReplayEqualsExecution) {
  for (uint64_t seed = 1; seed <= 4 && !HasFatalFailure(); ++seed) {
    expect_replay_equals_execution(e_, seed, true, test::scaled_steps(2000), 20);
  }
  for (uint64_t seed = 11; seed <= 30 && !HasFatalFailure(); ++seed)
    expect_replay_equals_execution(e_, seed, true, 12, 20);
}

TEST_P(Segments, ReplayEqualsExecutionWithPrioritiesLanesAndAsynchronousOperations) {
  for (uint64_t seed = 5; seed <= 8 && !HasFatalFailure(); ++seed) {
    expect_replay_equals_execution(e_, seed, false, test::scaled_steps(2000), 10);
  }
}

TEST_P(Segments, TakesItsPlaceAmongOtherOperations) {
  Var a = e_.new_var(), b = e_.new_var();
  int av = 0, bv = 0, sum = 0;
  Segment s = e_.record([&] {
    e_.push([&] { bv = av + 1; }, {.reads = {a}, .writes = {b}});
    e_.push([&] { av = bv * 2; }, {.reads = {b}, .writes = {a}});
  });
  int sa = 0, sb = 0, ssum = 0;
  for (int i = 0; i < 100; ++i) {
    e_.push([&] { av += 3; }, {.updates = {a}});
    s.replay();
    e_.push([&] { sum += av + bv; }, {.reads = {a, b}});
    e_.wait(b);
    sa += 3;
    sb = sa + 1;
    sa = (sb * 2) % 1000;
    ssum += sb * 2 + sb;
    e_.push([&] { av %= 1000; }, {.updates = {a}});
  }
  e_.wait_all();
  EXPECT_EQ(ssum, sum);
  EXPECT_EQ(sa, av);
}

TEST_P(Segments, AFailurePoisonsWithTheRootCause) {
  Var in = e_.new_var(), mid = e_.new_var(), out = e_.new_var(), after = e_.new_var();
  bool fails = false, ran = false;
  Segment s = e_.record([&] {
    e_.push(
        [&] {
          if (fails) throw std::runtime_error("inside");
        },
        {.reads = {in}, .writes = {mid}, .name = "node"});
    e_.push([&] { ran = true; }, {.reads = {mid}, .writes = {out}});
  });
  s.replay();
  e_.wait(out);
  EXPECT_TRUE(ran);
  fails = true;
  ran = false;
  s.replay();
  e_.push([&] { ran = true; }, {.reads = {out}, .writes = {after}});
  for (Var v : {mid, out, after}) {
    const std::string text = error_of<OperationError>([&] { e_.wait(v); });
    EXPECT_TRUE(contains(text, "[node]") && contains(text, "inside")) << text;
    EXPECT_TRUE(contains(text, "segment_test.cc")) << text;
  }
  EXPECT_FALSE(ran);
  e_.wait(in);
  error_of<OperationError>([&] { e_.wait_all(); });
  fails = false;
  s.replay();  // writes every variable that the failed replay had poisoned
  e_.wait(out);
  EXPECT_TRUE(ran);
}

TEST_P(Segments, AReplayOverPoisonIsSkipped) {
  Var in = e_.new_var(), out = e_.new_var();
  int n = 0;
  Segment s = e_.record([&] { e_.push([&] { ++n; }, {.reads = {in}, .writes = {out}}); });
  e_.push([] { throw std::runtime_error("before"); }, {.writes = {in}});
  s.replay();
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(out); }), "before"));
  EXPECT_EQ(0, n);
  error_of<OperationError>([&] { e_.wait_all(); });
  e_.push([] {}, {.writes = {in}});
  s.replay();
  e_.wait(out);
  EXPECT_EQ(1, n);
}

TEST_P(Segments, OnlyReading) {
  Var v = e_.new_var();
  std::atomic<int> n{0};
  Segment s = e_.record([&] {
    for (int i = 0; i < 5; ++i) e_.push([&] { ++n; }, {.reads = {v}});
  });
  EXPECT_EQ(5u, s.operations());
  EXPECT_EQ(0u, s.edges());
  for (int i = 0; i < 10; ++i) s.replay();
  e_.wait_all();
  EXPECT_EQ(50, n.load());
}

TEST_P(Segments, EmptyOnes) {
  Segment none;
  EXPECT_FALSE(none);
  error_of<InvalidState>([&] { none.replay(); });
  Segment nothing = e_.record([] {});
  EXPECT_EQ(0u, nothing.operations());
  nothing.replay();
  e_.wait_all();
}

TEST_P(Segments, MayBeDestroyedWhilePending) {
  auto counter = std::make_shared<std::atomic<int>>(0);
  Hold hold;
  Var gate = e_.new_var();
  e_.push_async(hold.operation(), {.writes = {gate}});
  {
    Segment s = e_.record([&] {
      e_.push([counter] { ++*counter; }, {.reads = {gate}});
      e_.push([counter] { ++*counter; }, {.reads = {gate}});
    });
    for (int i = 0; i < 10; ++i) s.replay();
  }
  EXPECT_GT(counter.use_count(), 1);
  hold.release();
  e_.wait_all();
  EXPECT_EQ(20, counter->load());
  EXPECT_EQ(1, counter.use_count());
}

TEST_P(Segments, KeepsDeletedVariablesAlive) {
  const uint64_t before = e_.stats().vars;
  std::atomic<int> value{0};
  {
    Var v = e_.new_var(), w = e_.new_var();
    Segment s = e_.record([&] {
      e_.push([&] { ++value; }, {.updates = {v}});
      e_.push([&] { ++value; }, {.reads = {v}, .updates = {w}});
    });
    e_.delete_var(v);
    e_.delete_var(w);
    std::vector<Var> others;  // these must not reuse the blocks of v and w
    for (int i = 0; i < 100; ++i) others.push_back(e_.new_var());
    Hold hold;
    e_.push_async(hold.operation(), {.updates = others});
    for (int i = 0; i < 10; ++i) s.replay();
    while (value.load() < 20) e_.wait_all(1);  // the replays do not depend on the others
    hold.release();
    e_.wait_all();
    for (Var o : others) e_.delete_var(o);
  }
  e_.wait_all();
  EXPECT_EQ(20, value.load());
  EXPECT_EQ(before, e_.stats().vars);
}

// A temporary of the recorded program: created, used and deleted in it.
TEST_P(Segments, KeepsVariablesThatTheProgramDeletes) {
  bool fails = false;
  Var out = e_.new_var();
  int n = 0;
  Segment s = e_.record([&] {
    Var temporary = e_.new_var();
    e_.push(
        [&] {
          if (fails) throw std::runtime_error("no");
        },
        {.writes = {temporary}});
    e_.push([&] { ++n; }, {.reads = {temporary}, .writes = {out}});
    e_.delete_var(temporary);
  });
  e_.wait_all();
  std::vector<Var> others;
  for (int i = 0; i < 100; ++i) others.push_back(e_.new_var());
  s.replay();
  e_.wait(out);
  EXPECT_EQ(1, n);
  fails = true;
  s.replay();
  error_of<OperationError>([&] { e_.wait(out); });
  for (Var v : others) e_.wait(v);  // none of them reuses the block of the temporary
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Segments, NestedRecordingThrows) {
  error_of<InvalidState>([&] { e_.record([&] { e_.record([] {}); }); });
  Var v = e_.new_var();
  int n = 0;
  e_.push([&] { ++n; }, {.writes = {v}});  // the failed recording has ended, so this push is not recorded
  e_.wait(v);
  EXPECT_EQ(1, n);
}

TEST_P(Segments, WaitingInsideARecordingThrows) {
  Var v = e_.new_var();
  Engine other(GetParam().options);
  e_.record([&] {
    error_of<InvalidState>([&] { e_.wait(v); });
    error_of<InvalidState>([&] { e_.wait(v, 1); });
    error_of<InvalidState>([&] { e_.wait_all(); });
    error_of<InvalidState>([&] { e_.recover(v); });
    other.wait_all();  // does not wait for the recorded operations
  });
  e_.wait(v);
}

TEST_P(Segments, AProgramThatThrowsRecordsNothing) {
  auto counter = std::make_shared<int>(0);
  Var v = e_.new_var();
  error_of<std::domain_error>([&] {
    e_.record([&] {
      e_.push([counter] { ++*counter; }, {.updates = {v}});
      throw std::domain_error("in the program");
    });
  });
  e_.wait_all();
  EXPECT_EQ(0, *counter);
  EXPECT_EQ(1, counter.use_count());
  e_.push([counter] { ++*counter; }, {.updates = {v}});
  e_.wait(v);
  EXPECT_EQ(1, *counter);
}

TEST_P(Segments, ReplaysFromSeveralThreadsExclude) {
  for (const bool plain : {true, false}) {
    SCOPED_TRACE(plain);
    Var v = e_.new_var(), w = e_.new_var();
    int64_t a = 0, b = 0, torn = 0;
    Segment s = e_.record([&] {
      e_.push([&] { ++a; }, {.updates = {v}, .priority = plain ? 0 : 1});
      e_.push([&] { ++b; }, {.updates = {w}});
      e_.push([&] { torn += a != b; }, {.reads = {v, w}});
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) s.replay();
      });
    for (std::thread& t : threads) t.join();
    e_.wait_all();
    EXPECT_EQ(800, a);
    EXPECT_EQ(800, b);
    EXPECT_EQ(0, torn);
  }
}

TEST_P(Segments, AReplayInsideARecordingIsRecorded) {
  Var v = e_.new_var();
  int value = 0;
  Segment inner = e_.record([&] { e_.push([&] { value = value * 2; }, {.updates = {v}}); });
  Segment outer = e_.record([&] {
    e_.push([&] { ++value; }, {.updates = {v}});
    inner.replay();
    inner.replay();
  });
  EXPECT_EQ(0, value);
  outer.replay();
  outer.replay();
  e_.wait(v);
  EXPECT_EQ(20, value);
}

TEST_P(Segments, OtherEnginesGoOnWhileOneRecords) {
  Engine other(GetParam().options);
  Var v = e_.new_var(), w = other.new_var();
  int recorded = 0, ran = 0;
  Segment inner = other.record([&] { other.push([&] { ran += 10; }, {.updates = {w}}); });
  Segment segment = e_.record([&] {
    EXPECT_TRUE(e_.recording());
    EXPECT_FALSE(other.recording());
    e_.push([&] { ++recorded; }, {.updates = {v}});
    other.push([&] { ++ran; }, {.updates = {w}});
    inner.replay();
    other.wait(w);
    EXPECT_EQ(11, ran);
    e_.delete_var(e_.new_var());
  });
  EXPECT_FALSE(e_.recording());
  EXPECT_EQ(1u, segment.operations());
  EXPECT_EQ(0, recorded);
  segment.replay();
  e_.wait(v);
  EXPECT_EQ(1, recorded);
  EXPECT_EQ(11, ran);
}

// Recorded operations are not in flight.
TEST_P(Segments, BytesOfARecordingDoNotCount) {
  Var v = e_.new_var();
  Segment segment = e_.record([&] { e_.push([] {}, {.updates = {v}, .bytes = 1000}); });
  EXPECT_EQ(0u, e_.stats().bytes_in_flight);
  segment.replay();
  e_.wait_all();
  EXPECT_EQ(0u, e_.stats().bytes_in_flight);
}

// Two workers share the long operations of one replay.
TEST(SegmentSharing, TwoWorkersTakePart) {
  Engine e(test::threaded_case(2).options);
  Var first = e.new_var();
  std::vector<Var> vars(2);
  for (Var& v : vars) v = e.new_var();
  std::barrier meeting(2);
  const auto spin = [] { test::spin_for(200); };
  Segment s = e.record([&] {
    for (int i = 0; i < 4; ++i) e.push(spin, {.updates = {first}});
    for (Var v : vars) e.push([&] { meeting.arrive_and_wait(); }, {.reads = {first}, .updates = {v}});
    for (Var v : vars) e.push([&] { meeting.arrive_and_wait(); }, {.updates = {v}});
  });
  for (int i = 0; i < 20; ++i) s.replay();
  e.wait_all();
}

// The program no longer holds the segment, so the functions are destroyed with the last replay, no matter
// which participant ends it.
TEST(SegmentSharing, WhenTheLastReplayHasEndedTheFunctionsAreGone) {
  struct GoesSlowly {
    std::atomic<bool>& gone;
    explicit GoesSlowly(std::atomic<bool>& flag) : gone(flag) {}
    ~GoesSlowly() {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      gone = true;
    }
  };
  Engine e(test::threaded_case(4).options);
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> arrived{0};
    std::atomic<bool> gone{false};
    {
      auto held = std::make_shared<GoesSlowly>(gone);
      Segment s = e.record([&] {
        for (int k = 0; k < 6; ++k)
          e.push(
              [&arrived, held] {  // each operation waits for a partner
                const int couples = (++arrived + 1) / 2;
                while (arrived < 2 * couples) std::this_thread::yield();
              },
              {});
      });
      held.reset();
      s.replay();
    }
    e.wait_all();
    ASSERT_TRUE(gone);
    e.wait_all();  // waits for the deletion of the segment's variable
    ASSERT_EQ(0u, e.stats().vars);
  }
}

}  // namespace
}  // namespace mx
