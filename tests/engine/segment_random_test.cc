// Segments mixed with other uses of their variables: random programs of replays, pushes, waits, failures,
// recoveries and deletions give the results of a serial interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/expect_state.h"
#include "tests/support/held.h"
#include "tests/support/random_program.h"

namespace mx {
namespace {

using test::SerialInterpreter;
using test::Step;

// Returns true if the operation fails. This depends on the values it reads, so one replay of a segment may
// fail and another not.
bool fails_on(const Step& step, const std::vector<uint64_t>& values) {
  uint64_t hash = static_cast<uint64_t>(step.id) * 77;
  for (int v : step.reads) hash = test::mix(hash, values[static_cast<size_t>(v)]);
  for (int v : step.updates) hash = test::mix(hash, values[static_cast<size_t>(v)]);
  return hash % 23 == 0;
}

struct Shape {
  int vars = 10;
  int segments = 3;
  int links = 5;       // variables per operation, on average
  int other_ops = 20;  // pushes per 100 steps, on average
  int looks = 10;      // waits per 100 steps, on average
};

class Program {
 public:
  Program(Engine& engine, uint64_t seed, const Shape& shape, int steps)
      : engine_(engine),
        shape_(shape),
        steps_(steps),
        random_(seed),
        oracle_(static_cast<size_t>(shape.vars + steps)),
        values_(static_cast<size_t>(shape.vars + steps), 0) {
    for (int i = 0; i < shape.vars; ++i) live_.push_back(create());
    for (int i = 0; i < shape.segments; ++i) segments_.push_back(record());
  }

  void run() {
    int paused_for = 0;
    for (int i = 0; i < steps_ && !testing::Test::HasFailure(); ++i) {
      if (paused_for > 0 && --paused_for == 0) engine_.resume();
      const int kind = below(200);
      if (kind < 2 * shape_.other_ops) {
        push_one();
      } else if (kind < 2 * (shape_.other_ops + shape_.looks)) {
        if (paused_for == 0) check(pick());
      } else if (kind < 2 * (shape_.other_ops + shape_.looks) + 6) {
        step_on(Step::Kind::recover, pick());
      } else if (kind == 190) {
        int& v = live_[static_cast<size_t>(below(shape_.vars))];
        engine_.delete_var(vars_[static_cast<size_t>(v)]);  // segments keep using it
        v = create();
      } else if (kind == 191) {
        segments_[static_cast<size_t>(below(shape_.segments))] = record();
      } else if (kind == 192 && paused_for == 0) {
        paused_for = 1 + below(10);
        engine_.pause();
      } else if (kind == 193 && paused_for == 0) {
        drain();
      } else if (kind == 194) {
        heal();
      } else {
        Recorded& s = segments_[static_cast<size_t>(below(shape_.segments))];
        for (int n = 1 + below(3); n > 0; --n) {
          oracle_run(*s.step);
          s.segment.replay(below(10) == 0 ? 1 : 0);
        }
      }
    }
    if (paused_for > 0) engine_.resume();
  }

  void check_all() {
    for (int v : live_) {
      if (testing::Test::HasFailure()) return;
      check(v);
    }
  }

  void finish() {
    for (int v : live_) engine_.delete_var(vars_[static_cast<size_t>(v)]);
    segments_.clear();
  }

  void drain() {
    try {
      engine_.wait_all();
    } catch (const OperationError&) {  // failures of the program itself
    }
  }

 private:
  struct Recorded {
    Segment segment;
    std::shared_ptr<Step> step;
  };

  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  int pick() { return live_[static_cast<size_t>(below(shape_.vars))]; }

  int create() {
    const int v = static_cast<int>(vars_.size());
    vars_.push_back(engine_.new_var());
    Step step;
    step.kind = Step::Kind::create;
    step.var = v;
    oracle_.run(step);
    return v;
  }

  void oracle_run(Step step) {
    if (step.kind == Step::Kind::op) step.fails = fails_on(step, oracle_.values());
    oracle_.run(step);
  }

  void step_on(Step::Kind kind, int v) {
    Step step;
    step.kind = kind;
    step.var = v;
    oracle_run(step);
    if (kind == Step::Kind::recover) engine_.recover(vars_[static_cast<size_t>(v)]);
  }

  std::shared_ptr<Step> make_step() {
    auto step = std::make_shared<Step>();
    step->id = next_id_++;
    for (int n = below(shape_.links); n > 0; --n) step->reads.push_back(pick());
    const int style = below(3);  // only writes, only updates, or both
    for (int n = 1 + below(shape_.links); n > 0; --n) {
      const bool writes = style == 0 || (style == 2 && below(2) == 0);
      (writes ? step->writes : step->updates).push_back(pick());
    }
    return step;
  }

  std::vector<Var> handles(const std::vector<int>& ids) const {
    std::vector<Var> out;
    for (int v : ids) out.push_back(vars_[static_cast<size_t>(v)]);
    return out;
  }

  void push_step(const std::shared_ptr<Step>& step) {
    const std::vector<Var> reads = handles(step->reads), writes = handles(step->writes),
                           updates = handles(step->updates);
    engine_.push(
        [step, values = &values_] {
          if (fails_on(*step, *values)) throw std::runtime_error(test::failure_text(step->id));
          test::compute(*step, *values);
        },
        {.reads = reads, .writes = writes, .updates = updates, .name = "step"});
  }

  void push_one() {
    const std::shared_ptr<Step> step = make_step();
    oracle_run(*step);
    push_step(step);
  }

  // Recovers variables, because poison spreads fast.
  void heal() {
    for (int v : live_) {
      if (oracle_.state(v).poison.empty() || below(4) == 0) continue;
      auto step = std::make_shared<Step>();
      step->id = next_id_++;
      step->writes = {v};
      oracle_run(*step);
      push_step(step);
    }
  }

  // Records one operation that computes, with other operations before and after it that access the same
  // variables in the same way.
  Recorded record() {
    Recorded out{{}, make_step()};
    const Step& step = *out.step;
    const auto touch = [&] {
      for (Var v : handles(step.reads)) engine_.push([] {}, {.reads = {v}});
      for (Var v : handles(step.updates)) engine_.push([] {}, {.updates = {v}});
      for (int v : step.writes) {
        const auto in = [&](const std::vector<int>& list) {
          return std::find(list.begin(), list.end(), v) != list.end();
        };
        const Var var = vars_[static_cast<size_t>(v)];
        if (!in(step.reads) && !in(step.updates)) engine_.push([] {}, {.writes = {var}});
      }
    };
    out.segment = engine_.record([&] {
      touch();
      push_step(out.step);
      touch();
    });
    return out;
  }

  void check(int v) {
    const auto i = static_cast<size_t>(v);
    test::expect_state(engine_, oracle_, v, vars_[i], values_[i]);
  }

  Engine& engine_;
  const Shape shape_;
  const int steps_;
  std::mt19937_64 random_;
  SerialInterpreter oracle_;
  std::vector<uint64_t> values_;
  std::vector<Var> vars_;
  std::vector<int> live_;
  std::vector<Recorded> segments_;
  int next_id_ = 1;
};

using RandomSegments = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, RandomSegments, ::testing::ValuesIn(test::all_cases()), test::CaseName());

void expect_all_gone(Engine& e) {
  try {
    e.wait_all();
  } catch (const OperationError&) {
  }
  EngineStats stats = e.stats();
  EXPECT_EQ(0u, stats.in_flight);
  EXPECT_EQ(stats.pushed, stats.completed);
  // The thread that ended the last replay of a segment may hold the last reference to the segment and so to
  // its variables. They are deleted when it releases the segment, and no wait covers that.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (stats.vars != 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
    stats = e.stats();
  }
  EXPECT_EQ(0u, stats.vars);
}

void expect_serial(Engine& e, uint64_t seed, const Shape& shape, int steps) {
  SCOPED_TRACE(seed);
  Program program(e, seed, shape, steps);
  program.run();
  program.check_all();
  program.drain();  // a segment that is destroyed with its last replay deletes its own variable afterwards
  program.finish();
  expect_all_gone(e);
}

TEST_P(RandomSegments, EqualSerialExecution) {
  for (uint64_t seed = 1; seed <= 8 && !HasFailure(); ++seed)
    expect_serial(e_, seed, {}, test::scaled_steps(1500));
}

// Either almost only one segment uses the variables and keeps them, or several segments take them from each
// other.
TEST_P(RandomSegments, EqualSerialExecutionWithFewOthers) {
  for (uint64_t seed = 11; seed <= 16 && !HasFailure(); ++seed) {
    expect_serial(e_, seed, {.segments = 1, .other_ops = 4, .looks = 2}, test::scaled_steps(1500));
  }
  for (uint64_t seed = 21; seed <= 26 && !HasFailure(); ++seed) {
    expect_serial(e_, seed, {.vars = 40, .segments = 4, .links = 15, .other_ops = 3, .looks = 3},
                  test::scaled_steps(1500));
  }
}

TEST_P(RandomSegments, EqualSerialExecutionFromTwoThreads) {
  std::vector<std::unique_ptr<Program>> programs;
  for (uint64_t seed = 31; seed <= 32; ++seed)
    programs.push_back(std::make_unique<Program>(e_, seed, Shape{}, test::scaled_steps(2000)));
  std::vector<std::thread> threads;
  for (auto& program : programs)
    threads.emplace_back([&program] {
      program->run();
      program->check_all();
      program->drain();
      program->finish();
    });
  for (std::thread& t : threads) t.join();
  expect_all_gone(e_);
}

// The second replay is pushed early, but when its turn comes, the first one has already failed or been
// skipped.
TEST_P(RandomSegments, AReplayBehindOneThatFailedIsSkippedIfItUpdates) {
  for (const bool updates : {true, false}) {
    SCOPED_TRACE(updates);
    Var v = e_.new_var(), gate = e_.new_var();
    bool fails = false;
    int ran = 0;
    const auto body = [&] {
      ++ran;
      if (std::exchange(fails, false)) throw std::runtime_error("first");
    };
    Segment s = e_.record([&] {
      if (updates) {
        e_.push(body, {.reads = {gate}, .updates = {v}});
      } else {
        e_.push(body, {.reads = {gate}, .writes = {v}});
      }
    });
    for (int i = 0; i < 3; ++i) s.replay();
    e_.wait_all();
    EXPECT_EQ(3, ran);
    fails = true;
    test::Hold hold;
    e_.push_async(hold.operation(), {.writes = {gate}});
    for (int i = 0; i < 3; ++i) s.replay();
    hold.release();
    if (updates) {
      EXPECT_TRUE(test::contains(test::error_of<OperationError>([&] { e_.wait(v); }), "first"));
    } else {
      e_.wait(v);
    }
    test::error_of<OperationError>([&] { e_.wait_all(); });
    EXPECT_EQ(updates ? 4 : 6, ran);
    e_.push([] {}, {.writes = {v}});
    s.replay();
    e_.wait(v);
    EXPECT_EQ(updates ? 5 : 7, ran);
  }
}

TEST_P(RandomSegments, ReplaysThatWereCancelledPoison) {
  Var v = e_.new_var(), w = e_.new_var(), gate = e_.new_var();
  int ran = 0;
  Segment s = e_.record([&] { e_.push([&] { ++ran; }, {.reads = {gate}, .writes = {w}, .updates = {v}}); });
  for (int i = 0; i < 3; ++i) s.replay();
  e_.wait_all();
  test::Hold hold;
  e_.push_async(hold.operation(), {.writes = {gate}});
  for (int i = 0; i < 3; ++i) s.replay();
  do {  // wait until the first operation has begun; this thread runs none of them
    e_.wait_all(1);
  } while (e_.stats().ready > 0 || e_.stats().running > 0);
  e_.cancel();
  hold.release();
  for (Var x : {v, w}) test::error_of<Cancelled>([&] { e_.wait(x); });
  test::error_of<Error>([&] { e_.wait_all(); });
  EXPECT_EQ(3, ran);
  e_.recover(v);
  s.replay();
  e_.wait(v);
  e_.wait(w);
  EXPECT_EQ(4, ran);
}

TEST_P(RandomSegments, WhatASegmentKeepsIsFreeWhenItIsGone) {
  const uint64_t before = e_.stats().vars;
  Var v = e_.new_var();
  int n = 0;
  test::Hold hold;
  Var gate = e_.new_var();
  {
    Segment s = e_.record([&] { e_.push([&] { ++n; }, {.reads = {gate}, .updates = {v}}); });
    for (int i = 0; i < 3; ++i) s.replay();
    e_.wait_all();
    e_.push_async(hold.operation(), {.writes = {gate}});
    s.replay();
    e_.push([&] { n *= 2; }, {.updates = {v}});
    s.replay();
  }
  hold.release();
  e_.wait(v);
  EXPECT_EQ(9, n);
  e_.delete_var(v);
  e_.delete_var(gate);
  e_.wait_all();
  EXPECT_EQ(before, e_.stats().vars);
}

TEST_P(RandomSegments, ASegmentMayOutliveItsEngine) {
  Segment s;
  int n = 0;
  {
    Engine e(GetParam().options);
    Var v = e.new_var(), w = e.new_var();
    s = e.record([&] { e.push([&] { ++n; }, {.writes = {w}, .updates = {v}}); });
    for (int i = 0; i < 5; ++i) s.replay();
    e.wait(v);
    s.replay();
  }
  EXPECT_EQ(6, n);
}

TEST_P(RandomSegments, TheProfilerMayComeAndGo) {
  Var v = e_.new_var();
  int n = 0;
  Segment s = e_.record([&] { e_.push([&] { ++n; }, {.updates = {v}}); });
  for (int i = 0; i < 6; ++i) {
    if (i == 2) e_.profiler_start();
    if (i == 4) e_.profiler_stop();
    s.replay();
    s.replay();
    if (i % 2 == 0) e_.wait_all();
  }
  e_.wait(v);
  EXPECT_EQ(12, n);
}

}  // namespace
}  // namespace mx
