// Tests of the explorer itself: it runs every schedule, finds every outcome, and detects a deadlock.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/engine/model/checked_atomic.h"
#include "tests/engine/model/report.h"

namespace mx::test::model {
namespace {

// Threads increment a counter by a separate read and write, so some increments are lost.
class CountModel : public Model {
 public:
  CountModel(int threads, int rounds) : threads_(threads), rounds_(rounds) {}
  int threads() const override { return threads_; }
  void reset() override { count_.emplace(0); }
  void run(int) override {
    for (int i = 0; i < rounds_; ++i) count_->store(count_->load() + 1);
  }
  void check_end() override { outcomes.insert(count_->load()); }

  std::set<int> outcomes;

 private:
  const int threads_, rounds_;
  std::optional<CheckedAtomic<int>> count_;
};

TEST(ModelCheckExplorer, RunsEverySchedule) {
  MX_SKIP_MODEL();
  // Two threads of n steps have (2n)! / n!^2 interleavings, three threads (3n)! / n!^3.
  CountModel four(2, 2);
  EXPECT_EQ(explore(four, {.remember_states = false}).executions, 70u);
  CountModel six(2, 3);
  EXPECT_EQ(explore(six, {.remember_states = false}).executions, 924u);
  CountModel three(3, 1);
  EXPECT_EQ(explore(three, {.remember_states = false}).executions, 90u);
  CountModel threes(3, 2);
  EXPECT_EQ(explore(threes, {.remember_states = false}).executions, 34650u);
}

TEST(ModelCheckExplorer, FindsEveryOutcomeWithFewerSchedules) {
  MX_SKIP_MODEL();
  for (const auto& [threads, rounds] : {std::pair{2, 2}, {2, 3}, {3, 1}, {3, 2}}) {
    CountModel all(threads, rounds);
    CountModel few(threads, rounds);
    const uint64_t executions = explore(all, {.remember_states = false}).executions;
    EXPECT_LT(explore(few).executions, executions);
    EXPECT_EQ(few.outcomes, all.outcomes);
    EXPECT_EQ(*few.outcomes.rbegin(), threads * rounds);
    EXPECT_EQ(*few.outcomes.begin(), rounds == 1 ? 1 : 2);
  }
}

TEST(ModelCheckExplorer, CountsPreemptions) {
  MX_SKIP_MODEL();
  CountModel none(2, 3);
  EXPECT_EQ(explore(none, {.preemptions = 0, .remember_states = false}).executions, 2u);
  EXPECT_EQ(none.outcomes, std::set<int>{6});
  CountModel one(2, 3);
  EXPECT_EQ(explore(one, {.preemptions = 1, .remember_states = false}).executions, 12u);
}

// Each of two threads waits for the other: a deadlock.
class WaitModel : public Model {
 public:
  explicit WaitModel(bool polls) : polls_(polls) {}
  int threads() const override { return 2; }
  void reset() override {
    flags_[0].emplace(0);
    flags_[1].emplace(0);
  }
  void run(int thread) override {
    if (polls_) {
      while (flags_[1 - thread]->load() == 0) checkpoint(1);
    } else {
      wait_until([&] { return flags_[1 - thread]->load() != 0; }, "wait for the other");
    }
    flags_[thread]->store(1);
  }

 private:
  const bool polls_;
  std::optional<CheckedAtomic<int>> flags_[2];
};

TEST(ModelCheckExplorer, KnowsWhenNobodyCanGoOn) {
  MX_SKIP_MODEL();
  WaitModel waits(false);
  EXPECT_NE(explore(waits).violation.find("deadlock"), std::string::npos);
  WaitModel polls(true);
  EXPECT_NE(explore(polls).violation.find("does not end"), std::string::npos);
}

}  // namespace
}  // namespace mx::test::model
