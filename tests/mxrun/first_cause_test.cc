#include "mxrun/first_cause.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace mx::launch {
namespace {

/// Three processes; those that are not in `ended` run.
struct Case {
  FirstCause cause;
  std::map<int, ProcessRecord> processes;

  Case() {
    for (int rank = 0; rank < 3; ++rank) {
      processes[rank].rank = rank;
      processes[rank].running = true;
    }
  }
  void exits(int rank, int code) {
    processes[rank].running = false;
    if (code == 0) return;
    Failure failure;
    failure.rank = rank;
    failure.code = code;
    cause.exited(failure);
  }
  void loses(int rank) { cause.lost({0, Role::worker, rank, 7, "no heartbeat"}); }
  std::optional<FirstCause::Verdict> decide() {
    return cause.decide([this](Role, int rank) { return &processes.at(rank); });
  }
};

TEST(FirstCauseTest, NothingIsDecidedWithoutFailure) {
  Case test;
  EXPECT_FALSE(test.cause.decide_at().has_value());
  EXPECT_FALSE(test.decide().has_value());
}

TEST(FirstCauseTest, FirstExitIfTheRendezvousKnowsNothing) {
  Case test;
  test.exits(1, 5);
  test.exits(0, 1);
  EXPECT_TRUE(test.cause.decide_at().has_value());
  const auto verdict = test.decide();
  EXPECT_EQ(verdict->failure.rank, 1);
  ASSERT_EQ(verdict->also.size(), 1u);
  EXPECT_EQ(verdict->also[0].rank, 0);
  EXPECT_FALSE(test.cause.decide_at().has_value());
}

TEST(FirstCauseTest, FirstLostEntryBeatsTheOrderOfExits) {
  Case test;
  test.exits(0, 1);
  test.loses(1);
  test.exits(1, 137);
  test.loses(0);
  const auto verdict = test.decide();
  EXPECT_EQ(verdict->failure.rank, 1);
  EXPECT_EQ(verdict->failure.code, 137);
  EXPECT_FALSE(verdict->runs);
}

TEST(FirstCauseTest, AProcessWithoutHeartbeatsIsTheCauseOfTheOthersExits) {
  Case test;
  test.loses(2);
  test.exits(0, 1);
  test.loses(0);
  test.exits(1, 1);
  const auto verdict = test.decide();
  EXPECT_EQ(verdict->failure.rank, 2);
  EXPECT_TRUE(verdict->runs);
  EXPECT_EQ(verdict->failure.reason, "no heartbeat (at step 7)");
  EXPECT_EQ(verdict->also.size(), 2u);
}

TEST(FirstCauseTest, ALostProcessThatEndedWellIsNoFailure) {
  Case test;
  test.loses(0);
  test.exits(0, 0);
  EXPECT_FALSE(test.decide().has_value());
  test.loses(0);
  test.exits(1, 3);
  EXPECT_EQ(test.decide()->failure.rank, 1);
}

FailsBecause because(int rank, int cause) { return {0, Role::worker, rank, Role::worker, cause}; }

TEST(FirstCauseTest, AProcessThatFailsBecauseOfAnotherIsNotTheFirst) {
  Case test;
  test.cause.because(because(0, 2));
  test.cause.because(because(2, 1));
  test.exits(0, 3);
  test.loses(0);
  test.exits(1, 5);
  test.exits(2, 3);
  const auto verdict = test.decide();
  EXPECT_EQ(verdict->failure.rank, 1);
  EXPECT_EQ(verdict->failure.code, 5);
  EXPECT_EQ(verdict->also.size(), 2u);
}

TEST(FirstCauseTest, TheProcessThatWasBlamedFirstIsNotExcusedByTheOthers) {
  Case test;
  test.cause.because(because(0, 1));
  test.cause.because(because(1, 0));  // it has seen that rank 0 reacted
  test.exits(0, 3);
  test.exits(1, 3);
  EXPECT_EQ(test.decide()->failure.rank, 1);
}

TEST(FirstCauseTest, TheVerdictWaitsForTheEndOfTheCause) {
  Case test;
  test.cause.because(because(0, 1));
  test.exits(0, 3);
  EXPECT_FALSE(test.decide().has_value());
  ASSERT_TRUE(test.cause.decide_at().has_value());
  test.exits(1, 7);
  EXPECT_EQ(test.decide()->failure.rank, 1);

  test.cause.because(because(2, 0));  // rank 0 has ended, without failure
  test.processes[0].ended = true;
  test.processes[0].running = false;
  test.exits(2, 4);
  EXPECT_EQ(test.decide()->failure.rank, 2) << "nobody else has failed";
}

TEST(FirstCauseTest, TheEndOfAnotherProcessDoesNotShortenTheWait) {
  Case test;
  test.cause.because(because(0, 1));
  test.cause.because(because(2, 1));
  test.exits(0, 3);
  EXPECT_FALSE(test.decide().has_value());
  const auto before = test.cause.decide_at();
  test.exits(2, 3);
  EXPECT_EQ(test.cause.decide_at()->at(), before->at());
  test.exits(1, 7);
  EXPECT_LT(test.cause.decide_at()->at(), before->at());
  EXPECT_EQ(test.decide()->failure.rank, 1);
}

TEST(FirstCauseTest, ACauseThatEndsWithoutFailureIsNamedBeside) {
  Case test;
  test.cause.because(because(0, 1));
  test.exits(0, 3);
  EXPECT_FALSE(test.decide().has_value());
  test.processes[1].ended = true;
  test.processes[1].running = false;
  test.cause.ended_well(Role::worker, 1);
  EXPECT_TRUE(test.cause.decide_at()->passed());
  const auto verdict = test.decide();
  EXPECT_EQ(verdict->failure.rank, 0);
  EXPECT_EQ(verdict->ended_well, (std::pair{Role::worker, 1}));
}

FailsBecause late(int rank, int cause) { return {0, Role::worker, rank, Role::worker, cause, true}; }

TEST(FirstCauseTest, AProcessForWhichOthersWaitedInVainIsNamed) {
  Case test;
  test.cause.because(late(0, 2));
  test.cause.because(late(1, 0));  // rank 0 waits, too
  test.exits(1, 3);
  test.exits(0, 3);
  EXPECT_FALSE(test.decide().has_value()) << "rank 2 may end soon";
  const auto verdict = test.decide();
  EXPECT_EQ(verdict->failure.rank, 2);
  EXPECT_TRUE(verdict->runs);
  EXPECT_TRUE(verdict->late);
  EXPECT_EQ(verdict->also.size(), 2u);
  EXPECT_FALSE(test.cause.decide_at().has_value());
}

TEST(FirstCauseTest, ALateProcessThatFailsIsNamedWithItsFailure) {
  Case test;
  test.cause.because(late(0, 1));
  test.exits(0, 3);
  EXPECT_FALSE(test.decide().has_value());
  test.exits(1, 7);
  const auto verdict = test.decide();
  EXPECT_EQ(verdict->failure.code, 7);
  EXPECT_FALSE(verdict->runs);
}

TEST(FirstCauseTest, ALateProcessThatWaitsItselfLeadsToTheNext) {
  Case test;
  test.cause.because(late(0, 1));
  test.exits(0, 3);
  EXPECT_FALSE(test.decide().has_value());
  test.cause.because(late(1, 2));
  test.exits(1, 3);
  EXPECT_FALSE(test.decide().has_value()) << "now rank 2 may end soon";
  EXPECT_EQ(test.decide()->failure.rank, 2);
}

TEST(FirstCauseTest, AnOldTimeoutThatTheProgramSurvivedIsNoCause) {
  Case test;
  test.cause.because(late(0, 1), comm::Deadline::Clock::now() - std::chrono::seconds(60));
  test.exits(0, 3);
  EXPECT_EQ(test.decide()->failure.rank, 0);
}

TEST(FirstCauseTest, TheVerdictDoesNotWaitForEver) {
  Case test;
  test.cause.because(because(0, 1));
  test.exits(0, 3);
  EXPECT_FALSE(test.decide().has_value());
  EXPECT_EQ(test.decide()->failure.rank, 0) << "rank 1 goes on";
  EXPECT_FALSE(test.cause.decide_at().has_value());
}

}  // namespace
}  // namespace mx::launch
