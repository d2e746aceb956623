// Deleting a variable during a push. A push first checks its handles and then takes its place in the
// program's order; in between, another thread can delete one of the variables. The closure's copy constructor
// runs in between, so here it plays the part of that thread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/scaled_steps.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

// A function object that calls `meanwhile` when a push copies it.
struct Interrupted {
  std::function<void()> meanwhile, body;
  Interrupted(std::function<void()> at_copy, std::function<void()> f)
      : meanwhile(std::move(at_copy)), body(std::move(f)) {}
  Interrupted(const Interrupted& other) : body(other.body) {
    if (other.meanwhile) other.meanwhile();
  }
  // A push of a temporary copies it as well.
  void operator()() const { body(); }
};

using Deletion = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Deletion, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Deletion, APushThatItOvertakesFailsAndLeavesTheMemorysNextVariableAlone) {
  for (const size_t others : {0u, 1u, 9u}) {  // number of other variables of the operation
    SCOPED_TRACE(others);
    Var v = e_.new_var("gone"), out = e_.new_var(), fresh;
    std::vector<Var> reads, others_made;
    for (size_t i = 0; i < others; ++i) reads.push_back(e_.new_var());
    bool ran = false;
    test::Hold hold;
    const Interrupted function(
        [&] {
          e_.delete_var(v);
          e_.wait_all();
          // The worker that ran the deletion may return the memory a moment after the wait has ended.
          for (int i = 0; i < 1000; ++i) {
            fresh = e_.new_var();
            if (fresh.block == v.block) break;
            others_made.push_back(fresh);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          e_.push_async(hold.operation(), {.writes = {fresh}});  // a writer that stays in flight
        },
        [&] { ran = true; });
    e_.push(function, {.reads = reads, .writes = {v, out}, .name = "late"});
    ASSERT_EQ(v.block, fresh.block) << "the memory was not used again: this test shows nothing";
    const std::string message = error_of<InvalidHandle>([&] { e_.wait(out); });
    EXPECT_TRUE(contains(message, "late")) << message;
    EXPECT_FALSE(ran);
    EXPECT_FALSE(e_.wait(fresh, 0)) << "the fresh variable's writer has been taken for the late one";
    hold.release();
    e_.wait(fresh);
    error_of<InvalidHandle>([&] { e_.wait_all(); });
    e_.push([&] { ran = true; }, {.writes = {fresh, out}});
    e_.wait(out);
    EXPECT_TRUE(ran);
    e_.delete_var(out);
    e_.delete_var(fresh);
    for (Var r : reads) e_.delete_var(r);
    for (Var made : others_made) e_.delete_var(made);
    e_.wait_all();
    EXPECT_EQ(0u, e_.stats().vars);
  }
}

TEST_P(Deletion, AnUpdateThatFailsSoLeavesItsOtherVariablesRecoverable) {
  Var v = e_.new_var(), kept = e_.new_var();
  e_.push([] {}, {.writes = {kept}});
  e_.push(Interrupted([&] { e_.delete_var(v); }, [] {}), {.reads = {v}, .updates = {kept}});
  error_of<InvalidHandle>([&] { e_.wait(kept); });
  e_.recover(kept);
  e_.wait(kept);
  error_of<InvalidHandle>([&] { e_.wait_all(); });
}

TEST_P(Deletion, ARecordingThatItOvertakesThrows) {
  Var v = e_.new_var();
  error_of<InvalidHandle>([&] {
    (void)e_.record([&] {
      e_.push(Interrupted(
                  [&] {
                    std::thread([&] {
                      e_.delete_var(v);
                      e_.wait_all();
                    }).join();
                  },
                  [] {}),
              {.writes = {v}});
    });
  });
  e_.wait_all();
  EXPECT_EQ(0u, e_.stats().vars);
}

// The abandoned operation must return to the engine that allocated it, even if its function used another
// engine.
TEST_P(Deletion, APushWhoseFunctionUsesAnotherEngineAndThrowsMixesNoMemory) {
  for (int i = 0; i < test::scaled_steps(100); ++i) {
    Engine other(test::threaded_case(1).options);
    const Interrupted function(
        [&] {
          other.push([] {});
          throw std::runtime_error("no copy");
        },
        [] {});
    EXPECT_THROW(e_.push(function), std::runtime_error);
    other.wait_all();
  }
  for (int i = 0; i < 1000; ++i) e_.push([] {});
  e_.wait_all();
}

TEST(DeletionThreaded, RacesWithPushesOfAllKinds) {
  Engine e(test::threaded_case(2).options);
  for (int round = 0; round < 300; ++round) {
    Var v = e.new_var();
    std::atomic<bool> go{false};
    std::thread pusher([&] {
      while (!go) {
      }
      try {
        for (int i = 0; i < 100; ++i) e.push([] {}, {.updates = {v}});
      } catch (const InvalidHandle&) {
      }
      try {
        e.wait(v);
      } catch (const InvalidHandle&) {
      }
    });
    go = true;
    e.delete_var(v);
    int writers = 0;
    std::atomic<int> together{0};
    std::vector<Var> vars;
    for (int i = 0; i < 4; ++i) {
      vars.push_back(e.new_var());
      for (int k = 0; k < 4; ++k) {
        e.push(
            [&] {
              if (together.fetch_add(1) > 4) ++writers;
              --together;
            },
            {.updates = {vars.back()}});
      }
    }
    pusher.join();
    try {
      e.wait_all();
    } catch (const InvalidHandle&) {
    }
    for (Var w : vars) e.delete_var(w);
  }
  e.wait_all();
  EXPECT_EQ(0u, e.stats().vars);
}

}  // namespace
}  // namespace mx
