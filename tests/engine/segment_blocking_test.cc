// Operations of one replay may wait for each other if there are enough threads. While a thread is inside an
// operation, the other threads can steal the operations of the replay that it has but has not started.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <latch>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/random_program.h"

namespace mx {
namespace {

using test::error_of;

std::vector<Var> new_vars(Engine& e, int n) {
  std::vector<Var> vars;
  for (int i = 0; i < n; ++i) vars.push_back(e.new_var());
  return vars;
}

// With this number of threads (one of which may be a waiter), two operations can run at once.
class SegmentBlocking : public ::testing::TestWithParam<int> {
 protected:
  Engine e_{test::threaded_case(GetParam()).options};
};
INSTANTIATE_TEST_SUITE_P(Threads, SegmentBlocking, ::testing::Values(2, 4));

TEST_P(SegmentBlocking, TwoFirstOperationsMeet) {
  const std::vector<Var> vars = new_vars(e_, 2);
  std::barrier meeting(2);
  int met = 0;
  Segment s = e_.record([&] {
    for (Var v : vars) e_.push([&] { meeting.arrive_and_wait(); }, {.updates = {v}});
    e_.push([&] { ++met; }, {.reads = vars});
  });
  for (int i = 0; i < 20; ++i) s.replay();
  e_.wait_all();
  EXPECT_EQ(20, met);
  for (int i = 0; i < 5; ++i) {
    s.replay();
    e_.wait(vars[1]);
  }
  EXPECT_EQ(25, met);
}

// Either the waiter or one of the workers runs the replay; in both cases the other thread helps.
TEST_P(SegmentBlocking, AReplayThatAWaiterRuns) {
  const std::vector<Var> vars = new_vars(e_, 2);
  std::barrier meeting(2);
  Segment s = e_.record([&] {
    for (Var v : vars) e_.push([&] { meeting.arrive_and_wait(); }, {.updates = {v}});
  });
  for (int i = 0; i < 20; ++i) {
    e_.pause();
    s.replay();
    e_.resume();
    e_.wait_all();
  }
}

TEST_P(SegmentBlocking, ManyShortOperationsThenTwoThatMeet) {
  Var chain = e_.new_var();
  const std::vector<Var> vars = new_vars(e_, 2);
  std::barrier meeting(2);
  int64_t n = 0;
  constexpr int kShort = 5000;
  Segment s = e_.record([&] {
    for (int i = 0; i < kShort; ++i) e_.push([&] { ++n; }, {.updates = {chain}});
    for (int round = 0; round < 3; ++round) {
      for (Var v : vars) e_.push([&] { meeting.arrive_and_wait(); }, {.reads = {chain}, .updates = {v}});
    }
  });
  for (int i = 0; i < 10; ++i) s.replay();
  e_.wait_all();
  EXPECT_EQ(10 * kShort, n);
}

// All operations are ready at once. The two that wait for each other may be anywhere among the roots.
TEST_P(SegmentBlocking, RootsFarApartMeet) {
  const std::vector<Var> vars = new_vars(e_, 2000);
  std::barrier meeting(2);
  std::atomic<int> n{0};
  Segment s = e_.record([&] {
    for (size_t i = 0; i < vars.size(); ++i) {
      if (i == 3 || i == vars.size() - 5) {
        e_.push([&] { meeting.arrive_and_wait(); }, {.updates = {vars[i]}});
      } else {
        e_.push([&] { n.fetch_add(1, std::memory_order_relaxed); }, {.updates = {vars[i]}});
      }
    }
  });
  for (int i = 0; i < 10; ++i) s.replay();
  e_.wait_all();
  EXPECT_EQ(10 * 1998, n.load());
}

// The first of many operations that became ready together does not return until all the others have run.
TEST_P(SegmentBlocking, TheRestOfTheStackIsNeeded) {
  constexpr int kFan = 64;
  Var head = e_.new_var();
  const std::vector<Var> leaves = new_vars(e_, kFan);
  std::atomic<int> begun{0}, ended{0};
  Segment s = e_.record([&] {
    e_.push([&] { begun = ended = 0; }, {.updates = {head}});
    for (Var leaf : leaves) {
      e_.push(
          [&] {
            if (begun.fetch_add(1) == 0) {
              for (int now = ended.load(); now < kFan - 1; now = ended.load()) ended.wait(now);
            } else {
              ended.fetch_add(1);
              ended.notify_all();
            }
          },
          {.reads = {head}, .updates = {leaf}});
    }
  });
  for (int i = 0; i < 20; ++i) s.replay();
  e_.wait_all();
}

// Two participants have one stack each. The first is blocked in an operation until the operations on the
// second one's stack have run; the second is blocked in an operation until the first one's has ended. So a
// third participant must steal the operations on the second stack.
TEST(SegmentBlockingOfThree, AnOperationInAnotherParticipantsStackIsNeeded) {
  constexpr int kFan = 64;
  Engine e(test::threaded_case(3).options);
  const std::vector<Var> heads = new_vars(e, 2), leaves = new_vars(e, 2 * kFan);
  std::barrier start(2);
  std::atomic<int> begun[2], ended[2];
  Segment s = e.record([&] {
    for (Var head : heads) e.push([&] { start.arrive_and_wait(); }, {.updates = {head}});
    for (size_t i = 0; i < 2 * kFan; ++i) {
      const size_t side = i / kFan;
      // Side 0 waits for all but the first operation of the other side; side 1 waits for all.
      const int needed = side == 0 ? kFan - 1 : kFan;
      e.push(
          [&, side, needed] {
            if (begun[side].fetch_add(1) == 0) {
              std::atomic<int>& others = ended[1 - side];
              for (int now = others.load(); now < needed; now = others.load()) others.wait(now);
            }
            ended[side].fetch_add(1);
            ended[side].notify_all();
          },
          {.reads = {heads[side]}, .updates = {leaves[i]}});
    }
    e.push([&] { begun[0] = begun[1] = ended[0] = ended[1] = 0; }, {.updates = leaves});
  });
  for (int i = 0; i < 20; ++i) s.replay();
  e.wait_all();
}

TEST_P(SegmentBlocking, AnOperationOutsideTheReplayIsNeeded) {
  Var v = e_.new_var(), w = e_.new_var();
  auto go = std::make_unique<std::latch>(1);
  Segment s = e_.record([&] { e_.push([&] { go->wait(); }, {.updates = {v}}); });
  for (int i = 0; i < 10; ++i) {
    s.replay();
    e_.push([&] { go->count_down(); }, {.updates = {w}});
    e_.wait_all();
    go = std::make_unique<std::latch>(1);
  }
}

// Other operations keep being pushed until those of the replay have met.
TEST_P(SegmentBlocking, OtherReadyOperationsDoNotKeepTheHelperAway) {
  const std::vector<Var> vars = new_vars(e_, 2);
  std::barrier meeting(2);
  std::atomic<int> met{0};
  Segment s = e_.record([&] {
    for (Var v : vars) {
      e_.push(
          [&] {
            meeting.arrive_and_wait();
            ++met;
          },
          {.updates = {v}});
    }
  });
  std::atomic<int64_t> others{0};
  for (int i = 1; i <= 5; ++i) {
    s.replay();
    while (met.load() < 2 * i) {
      for (int k = 0; k < 100; ++k) e_.push([&] { ++others; }, {});
    }
  }
  e_.wait_all();
}

TEST_P(SegmentBlocking, AFailureWhileAnotherOperationWaits) {
  const std::vector<Var> vars = new_vars(e_, 3);
  std::barrier meeting(2);
  std::atomic<bool> fails{false};
  Segment s = e_.record([&] {
    for (size_t i = 0; i < 2; ++i) {
      e_.push(
          [&, i] {
            meeting.arrive_and_wait();
            if (fails.load() && i == 1) throw std::runtime_error("after they met");
          },
          {.writes = {vars[i]}});
    }
    e_.push([] {}, {.reads = {vars[0], vars[1]}, .writes = {vars[2]}});
  });
  for (int i = 0; i < 10; ++i) {
    fails = i % 2 == 1;
    s.replay();
    if (fails) {
      error_of<OperationError>([&] { e_.wait(vars[2]); });
      error_of<OperationError>([&] { e_.wait_all(); });
    } else {
      e_.wait(vars[2]);
    }
  }
}

// One operation waits for another that comes after a failing operation but does not depend on it.
TEST(SegmentBlockingOfThree, WhatAnOperationWaitsForRunsAfterAFailureElsewhere) {
  Engine e(test::threaded_case(3).options);
  const std::vector<Var> vars = new_vars(e, 4);
  std::latch* failed = nullptr;
  std::barrier meeting(2);
  std::atomic<int> behind{0};
  Segment s = e.record([&] {
    e.push([&] { meeting.arrive_and_wait(); }, {.writes = {vars[0]}});
    e.push(
        [&] {
          failed->count_down();
          throw std::runtime_error("elsewhere");
        },
        {.writes = {vars[1]}});
    e.push([&] { ++behind; }, {.reads = {vars[1]}, .writes = {vars[2]}});
    e.push([&] { ++behind; }, {.reads = {vars[2]}, .writes = {vars[2]}});
    e.push([&] { failed->wait(); }, {.writes = {vars[3]}});
    e.push([&] { meeting.arrive_and_wait(); }, {.updates = {vars[3]}});
  });
  for (int i = 0; i < 10; ++i) {
    std::latch latch(1);
    failed = &latch;
    s.replay();
    error_of<OperationError>([&] { e.wait_all(); });
  }
  EXPECT_EQ(0, behind.load());
}

// Random graphs in which some pairs of operations wait for each other. Two threads are enough, because each
// pair depends on the previous pair. The first operation of a pair may start long before the predecessors of
// its partner have run.
void expect_pairs_meet(Engine& e, uint64_t seed, int replays) {
  SCOPED_TRACE(seed);
  const test::RandomProgram program =
      test::make_random_program({.seed = seed, .steps = 60, .live_vars = 12, .places = 1, .failures = false});
  std::mt19937_64 random(seed);
  std::vector<uint64_t> expected(program.vars, 0), values(program.vars, 0);
  const std::vector<Var> vars = new_vars(e, static_cast<int>(program.vars)), own = new_vars(e, 2);
  Var last = e.new_var();
  const auto handles = [&](const std::vector<int>& ids) {
    std::vector<Var> out;
    for (int v : ids) out.push_back(vars[static_cast<size_t>(v)]);
    return out;
  };
  std::vector<std::unique_ptr<std::barrier<>>> meetings;
  Segment segment = e.record([&] {
    for (const test::Step& step : program.steps) {
      if (step.kind != test::Step::Kind::op) continue;
      const std::vector<Var> reads = handles(step.reads), writes = handles(step.writes),
                             updates = handles(step.updates);
      e.push([&] { test::compute(step, values); }, {.reads = reads, .writes = writes, .updates = updates});
      if (random() % 6 != 0) continue;
      meetings.push_back(std::make_unique<std::barrier<>>(2));
      std::barrier<>* meeting = meetings.back().get();
      std::vector<Var> all = vars;
      if (random() % 2 == 0) {
        e.push([meeting] { meeting->arrive_and_wait(); }, {.reads = {last}, .writes = {own[0]}});
      } else {
        e.push([meeting] { meeting->arrive_and_wait(); }, {.reads = all, .writes = {own[0]}});
      }
      e.push([meeting] { meeting->arrive_and_wait(); }, {.reads = all, .writes = {own[1]}});
      all.insert(all.end(), {own[0], own[1], last});
      e.push([] {}, {.updates = all});
    }
  });
  for (int i = 0; i < replays; ++i) {
    for (const test::Step& step : program.steps) {
      if (step.kind == test::Step::Kind::op) test::compute(step, expected);
    }
    segment.replay();
    if (i % 3 != 0) continue;
    e.wait_all();
    ASSERT_EQ(expected, values) << "replay " << i;
  }
  e.wait_all();
  EXPECT_EQ(expected, values);
}

TEST_P(SegmentBlocking, RandomPairsMeetInRandomGraphs) {
  const auto seeds = static_cast<uint64_t>(test::scaled_steps(20));
  for (uint64_t seed = 1; seed <= seeds && !HasFatalFailure(); ++seed) expect_pairs_meet(e_, seed, 5);
}

// Simulates a kernel or a sandbox that refuses membarrier(2).
void refuse_membarrier() {
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_membarrier},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    std::_Exit(77);
}

TEST(SegmentBlockingDeathTest, WithoutTheKernelsBarrier) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        refuse_membarrier();
        {
          Engine e(test::threaded_case(2).options);
          for (uint64_t seed = 1; seed <= 5; ++seed) expect_pairs_meet(e, seed, 5);
        }
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      [](int status) { return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77); },
      "");
}

}  // namespace
}  // namespace mx
