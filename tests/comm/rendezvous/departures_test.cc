// Departures: who ended without having joined a group.
#include "comm/rendezvous/departures.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "comm/rendezvous/local.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// Entries reach a watch a little after they are written.
std::optional<EndedWorker> look_until_found(Departures& departures) {
  const Deadline deadline = Deadline::after_ms(20000);
  for (;;) {
    if (auto found = departures.look()) return found;
    if (deadline.passed()) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(Departures, AWorkerThatEndedBeforeItJoinedIsFound) {
  const auto table = make_local_rendezvous();
  Departures first(table, 0, "world", 0), third(table, 0, "world", 2);
  EXPECT_FALSE(first.look());
  table->put(ended_key(0, "worker", 1), "n1");
  for (Departures* one : {&first, &third, &first}) {
    const auto found = look_until_found(*one);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, 1);
    EXPECT_EQ(found->host, "n1");
  }
  // The first entry decides: the worker cannot join any more.
  EXPECT_THROW(Departures(table, 0, "world", 1), InvalidState);
}

TEST(Departures, AWorkerThatJoinedMayEnd) {
  const auto table = make_local_rendezvous();
  { const Departures joined(table, 0, "world", 1); }
  table->put(ended_key(0, "worker", 1), "n1");
  table->put(ended_key(0, "server", 2), "n1");  // servers join no group
  table->put(ended_key(1, "worker", 3), "n1");  // of another epoch
  Departures first(table, 0, "world", 0), other(table, 0, "group1", 0);
  ASSERT_TRUE(look_until_found(other));  // it did not join this one; so the watches have seen the entries
  EXPECT_FALSE(first.look());
}

}  // namespace
}  // namespace mx::comm
