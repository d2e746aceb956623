// Errors: the effect of a failing operation on the variables it touched, on its dependants and on waiters.
#include <gtest/gtest.h>

#include <exception>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/skip_cause.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/waiting.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Hold;
using test::LogCapture;

using Errors = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Errors, ::testing::ValuesIn(test::all_cases()), test::CaseName());

void fail() { throw std::runtime_error("the cause"); }

TEST_P(Errors, TheMessageNamesOperationPlaceAndCause) {
  Var v = e_.new_var();
  const int line = __LINE__ + 1;
  e_.push(fail, {.writes = {v}, .name = "culprit"});
  const std::string text = error_of<OperationError>([&] { e_.wait(v); });
  EXPECT_TRUE(contains(text, "[culprit]")) << text;
  EXPECT_TRUE(contains(text, "the cause")) << text;
  EXPECT_TRUE(contains(text, "errors_test.cc:" + std::to_string(line))) << text;
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, ANameThatTheCauseBeginsWithIsNotRepeated) {
  Var v = e_.new_var();
  e_.push([] { throw InvalidArgument("[culprit] expected something else"); },
          {.writes = {v}, .name = "culprit"});
  const std::string text = error_of<InvalidArgument>([&] { e_.wait(v); });
  EXPECT_TRUE(text.starts_with("[culprit] expected something else (pushed at ")) << text;
  error_of<InvalidArgument>([&] { e_.wait_all(); });
}

TEST_P(Errors, EveryWaiterGetsIt) {
  Var v = e_.new_var();
  e_.push(fail, {.updates = {v}, .name = "culprit"});
  std::string first;
  for (int i = 0; i < 3; ++i) {
    const std::string text = error_of<OperationError>([&] { e_.wait(v); });
    EXPECT_TRUE(contains(text, "[culprit]"));
    EXPECT_EQ(i == 0 ? text : first, text);
    first = text;
  }
  error_of<OperationError>([&] { e_.wait(v, 1000); });
  std::thread([&] { EXPECT_EQ(first, error_of<OperationError>([&] { e_.wait(v); })); }).join();
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ(first, error_of<OperationError>([&] { e_.wait(v); }));  // wait_all() recovers no variable
  e_.wait_all();                                                    // and reports an error only once
}

TEST_P(Errors, EveryWaiterThatIsAlreadyWaitingGetsIt) {
  Var v = e_.new_var();
  Hold hold;
  e_.push_async(hold.operation(), {.writes = {v}});
  e_.push(fail, {.updates = {v}, .name = "culprit"});
  std::atomic<int> got{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back(
        [&] { got += contains(error_of<OperationError>([&] { e_.wait(v); }), "[culprit]"); });
  }
  test::until_waiting(e_, 4);
  hold.release();
  for (std::thread& t : waiters) t.join();
  EXPECT_EQ(4, got.load());
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, DependantsAreSkippedWithTheRootCause) {
  Var a = e_.new_var(), b = e_.new_var(), c = e_.new_var(), d = e_.new_var();
  bool ran = false;
  e_.push(fail, {.writes = {a}, .name = "root"});
  e_.push([&] { ran = true; }, {.reads = {a}, .writes = {b}, .name = "second"});
  e_.push([&] { ran = true; }, {.reads = {d}, .updates = {b}, .name = "third"});
  e_.push([&] { ran = true; }, {.reads = {b}, .updates = {c}, .name = "fourth"});
  e_.push_async(
      [&](RunContext, Completion done) {
        ran = true;
        done();
      },
      {.reads = {c}, .writes = {d}});
  std::string root = error_of<OperationError>([&] { e_.wait(a); });
  EXPECT_TRUE(contains(root, "[root]"));
  for (Var v : {b, c, d}) EXPECT_EQ(root, error_of<OperationError>([&] { e_.wait(v); }));
  EXPECT_FALSE(ran);
  const EngineStats stats = e_.stats();
  EXPECT_EQ(1u, stats.failed);
  EXPECT_EQ(4u, stats.skipped);
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, TheFunctionOfASkippedOperationLearnsWhyWhenItIsDestroyed) {
  struct Noting {
    explicit Noting(std::string* text) : text_(text) {}
    Noting(Noting&& other) noexcept : text_(std::exchange(other.text_, nullptr)) {}
    ~Noting() {
      if (text_ == nullptr) return;
      try {
        if (const std::exception_ptr cause = skip_cause()) std::rethrow_exception(cause);
        *text_ = "not skipped";
      } catch (const std::exception& e) {
        *text_ = e.what();
      }
    }
    void operator()() const {}
    void operator()(RunContext, Completion completion) const { completion.done(); }
    std::string* text_;
  };
  std::string ran, sync, async;
  Var v = e_.new_var(), w = e_.new_var();
  e_.push(Noting(&ran), {.updates = {v}});
  e_.push(fail, {.updates = {v}, .name = "culprit"});
  e_.push_async(Noting(&async), {.reads = {v}, .updates = {w}});
  e_.push([noting = Noting(&sync)] {}, {.updates = {w}});
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ("not skipped", ran);
  EXPECT_TRUE(contains(sync, "[culprit]") && contains(sync, "the cause")) << sync;
  EXPECT_EQ(sync, async);
}

TEST_P(Errors, WhatFailedOnlyToReadStaysGood) {
  Var in = e_.new_var(), out = e_.new_var();
  int value = 0;
  e_.push([&] { value = 5; }, {.writes = {in}});
  e_.push(fail, {.reads = {in}, .writes = {out}});
  int seen = 0;
  e_.push([&] { seen = value; }, {.reads = {in}});
  e_.wait(in);
  error_of<OperationError>([&] { e_.wait(out); });
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ(5, seen);
}

TEST_P(Errors, AWriteHealsAnUpdateDoesNot) {
  Var v = e_.new_var(), w = e_.new_var();
  int value = 0;
  e_.push(fail, {.writes = {v, w}});
  e_.push([&] { value += 1; }, {.updates = {v}});
  e_.push([&] { value += 10; },
          {.reads = {w}, .writes = {v}});  // a write that is itself skipped recovers nothing
  error_of<OperationError>([&] { e_.wait(v); });
  EXPECT_EQ(0, value);
  e_.push([&] { value = 100; }, {.writes = {v}});
  e_.push([&] { value += 1; }, {.updates = {v}});
  e_.wait(v);
  EXPECT_EQ(101, value);
  error_of<OperationError>([&] { e_.wait(w); });
  error_of<OperationError>([&] { e_.wait_all(); });
}

// The failure poisons a version, not the variable: a reader of the version before it is not affected.
TEST_P(Errors, EarlierVersionsAreGood) {
  Var v = e_.new_var(), before = e_.new_var(), after = e_.new_var();
  int value = 0, copy = 0;
  e_.push([&] { value = 3; }, {.writes = {v}});
  e_.push([&] { copy = value; }, {.reads = {v}, .writes = {before}});
  e_.push(fail, {.updates = {v}});
  e_.push([&] { copy = -1; }, {.reads = {v}, .writes = {after}});
  e_.wait(before);
  error_of<OperationError>([&] { e_.wait(after); });
  EXPECT_EQ(3, copy);
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, AWaiterDoesNotGetTheFailureOfALaterVersion) {
  Var v = e_.new_var();
  Hold hold;
  e_.push_async(hold.operation(), {.writes = {v}});
  bool well = false;
  std::thread waiter([&] {
    e_.wait(v);
    well = true;
  });
  test::until_waiting(e_);
  e_.push(fail, {.writes = {v}, .name = "later"});
  hold.release();
  waiter.join();
  EXPECT_TRUE(well);
  error_of<OperationError>([&] { e_.wait(v); });
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, SkippedUpdatesAreRecovered) {
  Var batch = e_.new_var("batch"), weight = e_.new_var("weight");
  int w = 10;
  e_.push([] {}, {.writes = {weight}});
  e_.push(fail, {.writes = {batch}, .name = "load"});
  e_.push([&] { w += 1; }, {.reads = {batch}, .updates = {weight}});
  e_.push([&] { w += 1; }, {.reads = {batch}, .updates = {weight}});
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(weight); }), "[load]"));
  e_.recover(weight);
  e_.wait(weight);
  e_.push([&] { w *= 2; }, {.updates = {weight}});
  e_.wait(weight);
  EXPECT_EQ(20, w);
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, RecoverTakesItsPlaceInThePushOrder) {
  Var bad = e_.new_var(), weight = e_.new_var();
  int w = 1;
  Hold hold;
  e_.push_async(hold.operation(), {.writes = {bad}});
  e_.push(fail, {.updates = {bad}});
  e_.push([&] { w += 100; }, {.reads = {bad}, .updates = {weight}});
  e_.recover(weight);
  e_.push([&] { w += 1; }, {.updates = {weight}});
  hold.release();
  e_.wait(weight);
  EXPECT_EQ(2, w);
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, WhatAFailedOperationTouchedIsNotRecovered) {
  Var updated = e_.new_var(), written = e_.new_var(), skipped_write = e_.new_var(), both = e_.new_var();
  e_.push(fail, {.writes = {written}, .updates = {updated}});
  e_.push([] {}, {.reads = {written}, .writes = {skipped_write}});
  e_.push(fail, {.updates = {both}});
  e_.push([] {}, {.updates = {both}});  // the skipped update after it does not make it recoverable
  for (Var v : {updated, written, skipped_write, both}) {
    e_.recover(v);
    error_of<OperationError>([&] { e_.wait(v); });
  }
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, RecoverOfAGoodVariableDoesNothing) {
  Var v = e_.new_var();
  int value = 0;
  e_.recover(v);
  e_.push([&] { value = 1; }, {.writes = {v}});
  e_.recover(v);
  e_.wait(v);
  e_.wait_all();
  EXPECT_EQ(1, value);
}

TEST_P(Errors, TwoFailuresBothThrow) {
  Var a = e_.new_var(), b = e_.new_var(), both = e_.new_var();
  e_.push([] { throw std::runtime_error("one"); }, {.writes = {a}, .name = "first"});
  e_.push([] { throw std::runtime_error("two"); }, {.writes = {b}, .name = "second"});
  e_.push([] {}, {.reads = {b, a}, .writes = {both}});
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(b); }), "[second]"));
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(a); }), "[first]"));
  const std::string text = error_of<OperationError>([&] { e_.wait(both); });
  EXPECT_TRUE(contains(text, "[first]") || contains(text, "[second]"));
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(Errors, WaitAllReportsTheFirstAndHowMany) {
  Var v = e_.new_var();
  for (int i = 0; i < 5; ++i) {
    e_.push([i] { throw std::runtime_error("number " + std::to_string(i)); }, {.writes = {v}, .name = "op"});
  }
  const std::string text = error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_TRUE(contains(text, "number 0")) << text;
  EXPECT_TRUE(contains(text, "4 more")) << text;
  e_.wait_all();
  EXPECT_TRUE(e_.wait_all(0));
  e_.push([] { throw std::runtime_error("later"); }, {.writes = {v}});
  const std::string later = error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_TRUE(contains(later, "later")) << later;
  EXPECT_FALSE(contains(later, "more")) << later;
}

// Skipped dependants do not count as errors of their own.
TEST_P(Errors, WaitAllCountsRootsOnly) {
  Var v = e_.new_var();
  e_.push(fail, {.writes = {v}});
  for (int i = 0; i < 10; ++i) e_.push([] {}, {.updates = {v}});
  EXPECT_FALSE(contains(error_of<OperationError>([&] { e_.wait_all(); }), "more"));
  EXPECT_EQ(10u, e_.stats().skipped);
}

TEST_P(Errors, CancelSkipsWhatHasNotStarted) {
  Var gate = e_.new_var(), written = e_.new_var(), updated = e_.new_var();
  Hold hold;
  int value = 1;
  bool ran = false;
  e_.push([&] { value = 2; }, {.writes = {updated}});
  e_.wait(updated);
  e_.push_async(hold.operation(), {.writes = {gate}});
  e_.push([&] { ran = true; }, {.reads = {gate}, .writes = {written}, .name = "queued"});
  e_.push([&] { ran = true; }, {.reads = {gate}, .updates = {updated}, .name = "queued"});
  e_.push([&] { ran = true; }, {.reads = {written}, .name = "queued"});
  e_.cancel();
  hold.release();
  const std::string text = error_of<Cancelled>([&] { e_.wait(written); });
  EXPECT_TRUE(contains(text, "[queued]")) << text;
  error_of<Cancelled>([&] { e_.wait(updated); });
  error_of<Cancelled>([&] { e_.wait_all(); });
  EXPECT_FALSE(ran);
  // Later operations are not cancelled; the skipped update is recovered.
  e_.recover(updated);
  e_.push([&] { value *= 3; }, {.updates = {updated}});
  e_.push([&] { ran = true; }, {.writes = {written}});
  e_.wait(updated);
  e_.wait(written);
  EXPECT_EQ(6, value);
  EXPECT_TRUE(ran);
  e_.wait_all();
}

TEST_P(Errors, CancelOfReadyWorkWhilePaused) {
  int ran = 0;
  Var v = e_.new_var();
  e_.pause();
  for (int i = 0; i < 500; ++i) e_.push([&] { ++ran; }, {.writes = {v}, .priority = i % 3 - 1});
  e_.cancel();
  e_.push([&] { ran += 1000; }, {.writes = {v}});
  e_.resume();
  e_.wait(v);
  error_of<Cancelled>([&] { e_.wait_all(); });
  EXPECT_EQ(1000, ran);
}

TEST_P(Errors, AnErrorNobodyLookedAtIsLoggedAtShutdown) {
  LogCapture log;
  {
    Engine e(GetParam().options);
    Var v = e.new_var();
    e.push([] { throw std::runtime_error("overlooked one"); }, {.writes = {v}, .name = "quiet"});
    e.push([] { throw std::runtime_error("overlooked two"); }, {.writes = {v}, .name = "quiet"});
  }
  EXPECT_EQ(1u, log.count("overlooked one"));
  EXPECT_EQ(1u, log.count("overlooked two"));
  EXPECT_EQ(2u, log.count("[quiet]"));
}

TEST_P(Errors, AnErrorSomebodyLookedAtIsNotLogged) {
  LogCapture log;
  {
    Engine e(GetParam().options);
    Var v = e.new_var(), w = e.new_var();
    e.push([] { throw std::runtime_error("seen by wait"); }, {.writes = {v}});
    error_of<OperationError>([&] { e.wait(v); });
    e.push([] { throw std::runtime_error("overlooked"); }, {.writes = {w}});
  }
  EXPECT_EQ(0u, log.count("seen by wait"));
  EXPECT_EQ(1u, log.count("overlooked"));
  {
    Engine e(GetParam().options);
    e.push([] { throw std::runtime_error("seen by wait_all"); });
    error_of<OperationError>([&] { e.wait_all(); });
  }
  EXPECT_EQ(0u, log.count("seen by wait_all"));
}

// A bad label makes an operator and its gradient fail. The program has read the loss.
TEST_P(Errors, AnErrorThatAnotherOperationHasReportedIsNotLogged) {
  LogCapture log;
  {
    Engine e(GetParam().options);
    const auto fail_with = [&](const char* name, const char* text, int line) {
      const Var v = e.new_var();
      const auto here = std::source_location::current();
      const auto run = [text] { throw InvalidArgument(text); };
      if (line == 0) {
        e.push(run, {.writes = {v}, .name = name}, here);
      } else {
        e.push(run, {.writes = {v}, .name = name});
      }
      return v;
    };
    const Var loss = fail_with("nll", "[nll] expected labels, got 9 (inputs: f32 (4,))", 0);
    fail_with("nll_backward", "[nll] expected labels, got 9 (inputs: f32 (), f32 (4,))", 0);
    fail_with("nll", "[nll] expected labels, got 8 (inputs: f32 (4,))", 0);
    fail_with("nll", "[nll] expected labels, got 9 (inputs: f32 (4,))", 1);
    error_of<InvalidArgument>([&] { e.wait(loss); });
  }
  EXPECT_EQ(0u, log.count("[nll_backward]"));
  EXPECT_EQ(1u, log.count("got 8"));
  EXPECT_EQ(1u, log.count("got 9")) << "of another line";
}

TEST_P(Errors, ADeletedVariableTakesItsPoisonAlong) {
  for (int i = 0; i < 100; ++i) {
    Var v = e_.new_var();
    e_.push(fail, {.writes = {v}});
    e_.delete_var(v);
    error_of<OperationError>([&] { e_.wait_all(); });
    Var fresh = e_.new_var();
    e_.wait(fresh);
    e_.push([] {}, {.updates = {fresh}});
    e_.wait(fresh);
    e_.delete_var(fresh);
  }
}

}  // namespace
}  // namespace mx
