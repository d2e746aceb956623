// The variable queues, from the ring to the end of the operations. Every small program has its serial meaning
// under every schedule of pushers and workers (or, where a test says so, under every schedule with a few
// preemptions).
#include <gtest/gtest.h>

#include "tests/engine/model/mutant_dependency.h"
#include "tests/engine/model/sweep.h"

namespace mx::test::model {
namespace {

TEST(ModelCheckQueue, TwoPushersAndTwoWorkersKeepTheOrderOfTheRing) {
  MX_SKIP_LARGE_MODEL();
  Sweep two("2 operations on 1 variable, 2 pushers, 2 workers");
  for_each_program(2, 1, [&](const auto& ops) { two.add({.ops = ops, .pushers = {0, 1}}); });
  two.expect_complete();
  Sweep tiny("2 operations on 1 variable through a ring of 1, 2 pushers, 2 workers");
  tiny.add({.ops = {"u", "u"}, .pushers = {0, 1}, .ring = 1});
  tiny.expect_complete();
}

TEST(ModelCheckQueue, TwoPushersOfThreeOperationsKeepTheOrderOfTheRing) {
  MX_SKIP_MODEL();
  Sweep one("3 operations on 1 variable, 2 pushers, 2 workers; 2 preemptions", {.preemptions = 2});
  for_each_program(3, 1, [&](const auto& ops) { one.add({.ops = ops, .pushers = {0, 0, 1}}); });
  one.expect_complete();
}

TEST(ModelCheckQueue, TwoPushersOfThreeOperationsKeepTheOrderOfTheRingOnTwoVariables) {
  MX_SKIP_LARGE_MODEL();
  Sweep two("3 operations on 2 variables, 2 pushers, 2 workers; 1 preemption", {.preemptions = 1});
  for_each_program(3, 2, [&](const auto& ops) { two.add({.ops = ops, .pushers = {0, 0, 1}}); });
  two.expect_complete();
}

TEST(ModelCheckQueue, EveryProgramOfThreeOperationsAndEveryFailureHasItsSerialMeaning) {
  MX_SKIP_LARGE_MODEL();
  Sweep sweep("3 operations on 2 variables, any of them failing, 2 workers");
  for_each_program(3, 2, [&](const auto& ops) {
    for_each_failing_set(
        ops, [&](uint32_t failing) { sweep.add({.ops = ops, .failing = failing, .linked = true}); });
  });
  sweep.expect_complete();
}

TEST(ModelCheckQueue, LongerQueuesHaveTheirSerialMeaning) {
  MX_SKIP_MODEL();
  Sweep one("4 operations on 1 variable, any of them failing, 2 workers");
  for_each_program(4, 1, [&](const auto& ops) {
    for_each_failing_set(
        ops, [&](uint32_t failing) { one.add({.ops = ops, .failing = failing, .linked = true}); });
  });
  one.expect_complete();
}

TEST(ModelCheckQueue, ThreeWorkersKeepTheSerialMeaning) {
  MX_SKIP_LARGE_MODEL();
  Sweep three("operations on 3 variables, 3 workers");
  three.add({.ops = {"w..", ".w.", "..w", "rru", "urw"}, .linked = true, .ring = 8, .workers = 3});
  three.add(
      {.ops = {"w..", "rw.", "r.w", ".rr", "www"}, .failing = 2, .linked = true, .ring = 8, .workers = 3});
  three.expect_complete();
}

TEST(ModelCheckBatch, EveryOperationOfABatchRunsAndEndsOnce) {
  MX_SKIP_LARGE_MODEL();
  Sweep all("3 operations on 1 variable, any of them failing, 2 workers that take batches");
  for_each_program(3, 1, [&](const auto& ops) {
    for_each_failing_set(ops, [&](uint32_t failing) {
      all.add({.ops = ops, .failing = failing, .linked = true, .batches = true});
    });
  });
  all.expect_complete();
}

TEST(ModelCheckBatch, EveryProgramOfThreeOperationsKeepsItsMeaningInBatches) {
  MX_SKIP_LARGE_MODEL();
  Sweep sweep("3 operations on 2 variables, any of them failing, 2 workers that take batches; 2 preemptions",
              {.preemptions = 2});
  for_each_program(3, 2, [&](const auto& ops) {
    for_each_failing_set(ops, [&](uint32_t failing) {
      sweep.add({.ops = ops, .failing = failing, .linked = true, .batches = true});
    });
  });
  sweep.expect_complete();
}

TEST(ModelCheckBatch, WhatIsTakenAwayFromAnOwnerAtWorkRunsAndEndsOnce) {
  MX_SKIP_MODEL();
  Sweep one(
      "3 operations on 1 variable, any of them failing, a worker that takes batches, 2 times scavenged");
  for_each_program(3, 1, [&](const auto& ops) {
    for_each_failing_set(ops, [&](uint32_t failing) {
      one.add(
          {.ops = ops, .failing = failing, .linked = true, .workers = 1, .batches = true, .scavenges = 2});
    });
  });
  one.expect_complete();
  Sweep two("5 operations, 2 workers that take batches, scavenged; 2 preemptions", {.preemptions = 2});
  two.add({.ops = {"u", "u", "u", "u", "u"}, .linked = true, .ring = 8, .batches = true, .scavenges = 2});
  two.add({.ops = {"u..", "r.u", "ru.", ".rr", "w.."},
           .failing = 4,
           .linked = true,
           .ring = 8,
           .batches = true,
           .scavenges = 2});
  two.add({.ops = {"w..", ".w.", "..w", "r..", ".r."},
           .linked = true,
           .ring = 8,
           .batches = true,
           .scavenges = 2});
  two.expect_complete();
}

// The reordering that a processor may perform on a claim without a fence: the limit is read before the store.
struct LateClaim : detail::BasicBatch<CheckedAtomic, NoFence> {
  bool claim_next(uint32_t ran) {
    const bool granted = limit.load() > ran;
    claimed.store(ran + 1);
    return granted;
  }
};

TEST(ModelCheckBatch, IsFoundBrokenWithoutTheFenceOfAClaim) {
  MX_SKIP_MODEL();
  QueueModel<detail::DependencyState, CheckedAtomic, LateClaim> late(
      {.ops = {"w..", ".w.", "..w"}, .linked = true, .workers = 1, .batches = true, .scavenges = 1});
  expect_violation("claims without a fence", late);
}

TEST(ModelCheckBatch, IsFoundBrokenWhenAFailureDoesNotEndIt) {
  MX_SKIP_MODEL();
  QueueModel<> stubborn(
      {.ops = {"u", "u"}, .failing = 1, .linked = true, .workers = 1, .batches = true, .stubborn = true});
  expect_violation("a batch that goes on after a failure", stubborn);
}

// ---- the checks can fail ----

template <Mutation kMutation>
struct Mutant {
  template <class Sink>
  using Deps = MutantDependencyState<Sink, kMutation>;
};

// Returns the first program of three operations on two variables that detects the mutant, if any.
template <Mutation kMutation>
std::string found_in() {
  std::string found;
  for_each_program(3, 2, [&](const auto& ops) {
    for_each_failing_set(ops, [&](uint32_t failing) {
      if (!found.empty()) return;
      const Program program = {.ops = ops, .failing = failing, .linked = true};
      QueueModel<Mutant<kMutation>::template Deps> model(program);
      const Exploration result = explore(model);
      if (!result.violation.empty()) {
        found = program.text() + ": " + result.violation.substr(0, result.violation.find('\n'));
      }
    });
  });
  std::printf("             %s\n", found.c_str());
  return found;
}

TEST(ModelCheckMutants, AreFound) {
  MX_SKIP_MODEL();
  EXPECT_NE(found_in<Mutation::writers_ignore_readers>(), "");
  EXPECT_NE(found_in<Mutation::granted_writers_ignore_readers>(), "");
  EXPECT_NE(found_in<Mutation::only_first_reader>(), "");
  EXPECT_NE(found_in<Mutation::no_next>(), "");
  EXPECT_NE(found_in<Mutation::no_next_after_readers>(), "");
  EXPECT_NE(found_in<Mutation::lost_skip>(), "");
  EXPECT_NE(found_in<Mutation::readers_overtake>(), "");
  EXPECT_NE(found_in<Mutation::updates_heal>(), "");
  EXPECT_NE(found_in<Mutation::writes_do_not_heal>(), "");
}

TEST(ModelCheckMutants, TheCopyWithoutAMutationPasses) {
  MX_SKIP_LARGE_MODEL();
  Program program = {.ops = {"w.", "ru", "wr"}, .failing = 1, .linked = true};
  QueueModel<Mutant<Mutation::none>::Deps> model(program);
  expect_complete("the copy that mutants are made of", model);
}

}  // namespace
}  // namespace mx::test::model
