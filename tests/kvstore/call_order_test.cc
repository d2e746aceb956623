// The order in which a CallSequence starts calls by priority: what the ranks choose, and what overtakes what.
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/deadline.h"
#include "engine/base/error.h"
#include "kvstore/call_choice.h"
#include "kvstore/call_sequence.h"
#include "tests/kvstore/keeping_communicator.h"

namespace mx {
namespace {

using detail::CallChoice;
using detail::CallOrder;
using detail::CallSequence;
using test::KeepingCommunicator;
using Names = std::vector<std::string>;

TEST(CallChoice, IsWhatRank0PrefersOfWhatAllHaveReady) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const size_t ranks = 1 + random() % 4, window = random() % 2 == 0 ? 12 : CallChoice::kWindow;
    std::vector<CallChoice> records(ranks);
    std::vector<size_t> preferred;  // by rank 0, in its order
    std::vector<std::set<size_t>> ready(ranks);
    for (size_t r = 0; r < ranks; ++r)
      for (size_t i = random() % (2 * window); i-- > 0;) {
        const size_t distance = random() % window;
        if (!ready[r].insert(distance).second) continue;
        records[r].add(distance);
        if (r == 0) preferred.push_back(distance);
      }
    const auto everywhere = [&](size_t distance) {
      for (const auto& own : ready)
        if (!own.contains(distance)) return false;
      return true;
    };
    std::optional<size_t> expected;
    for (size_t i = 0; i < preferred.size() && i < CallChoice::kMostPreferred && !expected; ++i)
      if (everywhere(preferred[i])) expected = preferred[i];
    for (size_t distance = 0; distance < window && !expected; ++distance)
      if (everywhere(distance)) expected = distance;
    ASSERT_EQ(expected.value_or(0), CallChoice::choose(records)) << "round " << round;
  }
}

/// A sequence in the order of priorities, and what it has asked of its communicator.
class CallOrderTest : public ::testing::Test {
 protected:
  // A request that is kept refers to the sequence, and the sequence to what keeps the request.
  void TearDown() override { finish(); }

  CallSequence::Ticket take(const std::string& name, std::optional<int> priority) {
    return sequence_->take(name, priority);
  }
  void start(CallSequence::Ticket ticket, const std::string& name, size_t requests = 1) {
    CallSequence::Call call{.done = [this, name](const std::exception_ptr& error) {
      ended_.push_back(error ? "failed " + name : name);
    }};
    for (size_t i = 0; i < requests; ++i)
      call.requests.push_back({.count = 1, .options = {.what = name}, .done = {}});
    ticket.start(std::move(call));
  }
  void push(const std::string& name, std::optional<int> priority, size_t requests = 1) {
    start(take(name, priority), name, requests);
  }
  /// Returns what is in flight.
  std::string in_flight() const {
    EXPECT_LE(group_->kept.size(), 1u);
    if (group_->kept.empty()) return "nothing";
    return group_->kept[0].collective == comm::Collective::allgather ? "choice"
                                                                     : group_->kept[0].options.what;
  }
  /// Ends requests until none is in flight. Returns the calls among them, in their order.
  Names finish() {
    Names started;
    while (!group_->kept.empty()) {
      if (in_flight() != "choice") started.push_back(in_flight());
      group_->end_one();
    }
    return started;
  }

  const std::shared_ptr<KeepingCommunicator> group_ = std::make_shared<KeepingCommunicator>();
  // The credit is that of the other order: one byte here makes no difference.
  const std::shared_ptr<CallSequence> sequence_ =
      std::make_shared<CallSequence>(group_, 1, CallOrder::priority);
  Names ended_;
};

TEST_F(CallOrderTest, TheHighestPriorityOfWhatWaitsStartsNextAndTheFirstOfEqualOnes) {
  push("a", 0);
  for (const auto& [name, priority] : {std::pair<const char*, int>{"b", 1}, {"c", 5}, {"d", -1}, {"e", 5}})
    push(name, priority);
  EXPECT_EQ(in_flight(), "choice");  // of a, the only one when it began
  EXPECT_EQ(finish(), (Names{"a", "c", "e", "b", "d"}));
  EXPECT_EQ(ended_, (Names{"a", "c", "e", "b", "d"}));
}

TEST_F(CallOrderTest, ACallThatIsNotReadyIsOvertakenByAnyOther) {
  auto first = take("first", 9);
  push("second", 0);
  EXPECT_EQ(finish(), (Names{"second"}));
  push("third", -9);
  EXPECT_EQ(finish(), (Names{"third"}));
  start(std::move(first), "first");
  EXPECT_EQ(finish(), (Names{"first"}));
}

// A rank whose first call is not ready waits for its own value. Only a rank whose first call is ready has a
// limit.
TEST_F(CallOrderTest, AChoiceHasTheLimitOfTheFirstCallIfThatIsReady) {
  const auto start_with_limit = [&](CallSequence::Ticket ticket) {
    CallSequence::Call call{.done = [](const std::exception_ptr&) {}};
    call.requests.push_back({.count = 1, .options = {.timeout_ms = 1000}, .done = {}});
    ticket.start(std::move(call));
  };
  auto first = take("first", 0);
  start_with_limit(take("second", 0));
  ASSERT_EQ(in_flight(), "choice");
  EXPECT_EQ(group_->kept[0].options.timeout_ms, comm::kLongestTimeoutMs);
  finish();
  start_with_limit(std::move(first));
  ASSERT_EQ(in_flight(), "choice");
  EXPECT_EQ(group_->kept[0].options.timeout_ms, 1000);
}

TEST_F(CallOrderTest, AFenceIsPassedInNeitherDirection) {
  auto before = take("before", 0);
  push("fence", std::nullopt);
  push("after", 9);
  EXPECT_EQ(in_flight(), "nothing");
  start(std::move(before), "before");
  push("later", 10);
  EXPECT_EQ(finish(), (Names{"before", "fence", "later", "after"}));
}

TEST_F(CallOrderTest, FencesNeedNoChoice) {
  push("one", std::nullopt);
  EXPECT_EQ(in_flight(), "one");
  push("two", std::nullopt);
  group_->end_one();
  EXPECT_EQ(in_flight(), "two");
}

TEST_F(CallOrderTest, ALargeCallIsOvertakenBetweenItsRequests) {
  push("large", 1, 3);
  group_->end_one();
  EXPECT_EQ(in_flight(), "large");
  push("urgent", 2);
  push("idle", 0);
  EXPECT_EQ(finish(), (Names{"large", "urgent", "large", "large", "idle"}));
  EXPECT_EQ(ended_, (Names{"urgent", "large", "idle"}));
}

TEST_F(CallOrderTest, CallsFarBehindTheFirstOneWait) {
  auto first = take("first", 0);
  Names names;
  for (size_t i = 1; i < 2 * CallChoice::kWindow; ++i) {
    names.push_back(std::to_string(i));
    push(names.back(), 1);
  }
  const Names early = finish();
  EXPECT_EQ(early, Names(names.begin(), names.begin() + CallChoice::kWindow - 1));
  start(std::move(first), "first");
  const Names rest = finish();
  ASSERT_EQ(rest.size(), names.size() - early.size() + 1);
  EXPECT_EQ(rest[0], "first");
  EXPECT_EQ(Names(rest.begin() + 1, rest.end()), Names(names.begin() + CallChoice::kWindow - 1, names.end()));
}

TEST_F(CallOrderTest, AfterAnErrorAllCallsEndWithIt) {
  const auto lost = std::make_exception_ptr(PeerLost("gone"));
  // A choice and a request of a, a choice and b, a choice and the other request of a: which of them fails.
  for (int failing = 0; failing < 6; ++failing) {
    const auto group = std::make_shared<KeepingCommunicator>();
    const auto sequence = std::make_shared<CallSequence>(group, 1, CallOrder::priority);
    int failed = 0, fine = 0;
    const auto push_call = [&](std::optional<int> priority, size_t requests) {
      CallSequence::Call call{.done = [&](const std::exception_ptr& error) { ++(error ? failed : fine); }};
      call.requests.resize(requests);
      sequence->take("call", priority).start(std::move(call));
    };
    auto late = std::make_optional(sequence->take("late", 7));
    push_call(0, 2);  // a
    push_call(1, 1);  // b
    push_call(std::nullopt, 1);
    for (int i = 0; i < failing; ++i) group->end_one();
    group->end_one(lost);
    // Calls end in the order of the tickets, so they wait for the first one.
    late->start({.requests = std::vector<comm::Request>(1),
                 .done = [&](const std::exception_ptr& error) { ++(error ? failed : fine); }});
    late.reset();
    push_call(3, 2);
    EXPECT_TRUE(group->kept.empty()) << failing;
    EXPECT_EQ(5, failed + fine) << failing;
    EXPECT_EQ(failing < 4 ? 0 : 1, fine) << failing;  // b
    EXPECT_THROW(sequence->run("later", {.requests = std::vector<comm::Request>(1)}), PeerLost);
  }
}

}  // namespace
}  // namespace mx
