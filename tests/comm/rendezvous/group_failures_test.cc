// GroupFailures: ranks that cannot join a group.
#include "comm/rendezvous/group_failures.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "comm/deadline.h"
#include "comm/rendezvous/local.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// Entries reach a watch a little after they are written.
std::string failure_of(GroupFailures& group) {
  const Deadline deadline = Deadline::after_ms(20000);
  while (!deadline.passed()) {
    try {
      group.check();
    } catch (const PeerLost& error) {
      return error.what();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "nothing";
}

TEST(GroupFailures, WhatARankCannotDoIsToldToTheOthersOfItsGroup) {
  const auto table = make_local_rendezvous();
  GroupFailures own(table, 0, "world", 1), other(table, 0, "world", 0), later(table, 0, "group1", 0),
      restarted(table, 1, "world", 0);
  own.tell("n7", "[tcp] no descriptor\nat all");
  const std::string text = failure_of(other);
  for (const char* part : {"'world'", "rank 1 on host n7", "[tcp] no descriptor\nat all"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(other.failed_rank(), 1);
  EXPECT_EQ(own.failed_rank(), std::nullopt);
  GroupFailures late(table, 0, "world", 2);
  EXPECT_EQ(failure_of(late), text);
  own.check();  // its own error is thrown where it happens
  later.check();
  restarted.check();
}

TEST(GroupFailures, AnotherTransportThanThatOfRankZeroIsNamed) {
  const auto table = make_local_rendezvous();
  GroupFailures first(table, 0, "world", 0), same(table, 0, "world", 1), other(table, 0, "world", 2),
      later(table, 0, "world2", 0), of_later(table, 0, "world2", 2);
  other.compare("n2", "tcp", "from new_group()");
  later.compare("n0", "tcp", "the default");
  of_later.compare("n2", "tcp", "from MX_TRANSPORT");
  EXPECT_TRUE(later.wait_for_first(0));
  EXPECT_FALSE(other.wait_for_first(1)) << "rank 0 has said nothing yet";
  first.compare("n0", "shm", "from MX_TRANSPORT");
  same.compare("n1", "shm", "the default");
  for (GroupFailures* group : {&other, &same, &of_later}) EXPECT_TRUE(group->wait_for_first(20000));
  const std::string text = failure_of(other);
  for (const char* part : {"'world'", "'tcp' on rank 2 on host n2 (from new_group())",
                           "'shm' on rank 0 on host n0 (from MX_TRANSPORT)"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  for (GroupFailures* group : {&first, &same, &later, &of_later}) group->check();
}

}  // namespace
}  // namespace mx::comm
