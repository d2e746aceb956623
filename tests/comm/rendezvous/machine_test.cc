// The server of the rendezvous as a state machine: no sockets, and the time is a number.
#include "comm/rendezvous/machine.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "comm/rendezvous/lost.h"

namespace mx::comm {
namespace {

using Machine = RendezvousMachine;

/// A machine whose actions are collected.
class MachineTest : public ::testing::Test {
 protected:
  void connect(uint64_t id, int32_t rank, const std::string& role = "worker", int64_t epoch = 0) {
    machine_.connect(id, {epoch, rank}, now_);
    say(id, {FrameKind::join, 1, 0, role, "n" + std::to_string(rank)});
  }
  void say(uint64_t id, Frame frame) {
    machine_.receive(id, std::move(frame), now_);
    collect();
  }
  void tick(int64_t ms) {
    now_ += ms;
    machine_.tick(now_);
    collect();
  }
  void collect() {
    Machine::Actions actions = machine_.take();
    for (auto& [to, frame] : actions.send) heard_[to].push_back(std::move(frame));
    for (const uint64_t id : actions.close) closed_.insert(id);
  }
  /// Returns what a client heard since the last call.
  std::vector<Frame> heard(uint64_t id) { return std::exchange(heard_[id], {}); }
  Frame last(uint64_t id) {
    const std::vector<Frame> frames = heard(id);
    return frames.empty() ? Frame{} : frames.back();
  }
  std::string entry(uint64_t id, const std::string& key) {
    say(id, {FrameKind::get, 77, 0, key, {}});
    const Frame frame = last(id);
    return frame.kind == FrameKind::value ? frame.value : "no entry";
  }

  Machine machine_{{.dead_after_ms = 1000, .max_table_bytes = 1000, .max_requests = 4}};
  int64_t now_ = 5;
  std::map<uint64_t, std::vector<Frame>> heard_;
  std::set<uint64_t> closed_;
};

TEST_F(MachineTest, RequestsAreAnswered) {
  connect(1, 0);
  EXPECT_EQ(last(1).kind, FrameKind::done);
  say(1, {FrameKind::put, 2, 0, "k", "v"});
  EXPECT_EQ(last(1), (Frame{FrameKind::done, 2, 0, "", ""}));
  say(1, {FrameKind::get, 3, 0, "k", ""});
  EXPECT_EQ(last(1), (Frame{FrameKind::value, 3, 0, "", "v"}));
  say(1, {FrameKind::put, 4, 0, "k", "other"});
  EXPECT_EQ(last(1).kind, FrameKind::error);
  say(1, {FrameKind::put, 5, 0, "", "v"});
  EXPECT_EQ(last(1).kind, FrameKind::error);
  say(1, {FrameKind::heartbeat, 0, 17, "", ""});
  EXPECT_EQ(last(1), (Frame{FrameKind::heartbeat, 0, 17, "", ""}));
  EXPECT_TRUE(closed_.empty());
}

TEST_F(MachineTest, GetsWaitUntilTheyAreCancelled) {
  connect(1, 0);
  connect(2, 1);
  heard(1);
  say(1, {FrameKind::get, 2, 0, "a", ""});
  say(1, {FrameKind::get, 3, 0, "b", ""});
  say(1, {FrameKind::cancel, 2, 0, "", ""});
  EXPECT_EQ(heard(1), (std::vector<Frame>{{FrameKind::done, 2, 0, "", ""}}));
  say(2, {FrameKind::put, 2, 0, "a", "1"});
  say(2, {FrameKind::put, 3, 0, "b", "2"});
  EXPECT_EQ(heard(1), (std::vector<Frame>{{FrameKind::value, 3, 0, "", "2"}}));
  say(1, {FrameKind::cancel, 3, 0, "", ""});  // answered already
  EXPECT_TRUE(heard(1).empty());
}

TEST_F(MachineTest, WatchesReportPresentAndLaterEntriesUntilTheyEnd) {
  connect(1, 0);
  connect(2, 1);
  heard(1);
  say(2, {FrameKind::put, 2, 0, "p/1", "1"});
  say(1, {FrameKind::watch, 2, 0, "p/", ""});
  say(2, {FrameKind::put, 3, 0, "p/2", "2"});
  say(2, {FrameKind::put, 4, 0, "q", "3"});
  EXPECT_EQ(heard(1), (std::vector<Frame>{{FrameKind::changed, 2, 0, "p/1", "1"},
                                          {FrameKind::changed, 2, 0, "p/2", "2"}}));
  say(1, {FrameKind::unwatch, 3, 2, "", ""});
  heard(1);
  say(2, {FrameKind::put, 5, 0, "p/3", "3"});
  EXPECT_TRUE(heard(1).empty());
}

TEST_F(MachineTest, OneClientCannotFillTheMemory) {
  connect(1, 0);
  say(1, {FrameKind::put, 2, 0, "a", std::string(900, 'x')});
  EXPECT_EQ(last(1).kind, FrameKind::done);
  say(1, {FrameKind::put, 3, 0, "b", std::string(200, 'x')});
  EXPECT_EQ(last(1).kind, FrameKind::error);
  for (uint64_t i = 10; i < 14; ++i) say(1, {i % 2 ? FrameKind::get : FrameKind::watch, i, 0, "none", ""});
  heard(1);
  say(1, {FrameKind::get, 20, 0, "none", ""});
  EXPECT_EQ(last(1).kind, FrameKind::error);
  say(1, {FrameKind::watch, 21, 0, "none", ""});
  EXPECT_EQ(last(1).kind, FrameKind::error);
  EXPECT_TRUE(closed_.empty());
}

TEST_F(MachineTest, ASilentRankIsPublishedOnceWithItsStep) {
  connect(1, 0);
  connect(2, 3);
  say(1, {FrameKind::watch, 2, 0, lost_prefix(0), ""});
  heard(1);
  say(2, {FrameKind::heartbeat, 0, 42, "", ""});
  EXPECT_EQ(machine_.next_tick_ms(), now_ + 1000);
  tick(999);
  EXPECT_TRUE(heard(1).empty());
  say(1, {FrameKind::heartbeat, 0, 43, "", ""});
  heard(1);
  tick(1);
  const std::vector<Frame> frames = heard(1);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].key, "0/lost/worker3");
  EXPECT_EQ(frames[0].value, "n3\n42\nno heartbeat for 1000 ms");
  EXPECT_EQ(closed_, std::set<uint64_t>{2});
  const Frame verdict = last(2);
  EXPECT_EQ(verdict.kind, FrameKind::error);
  EXPECT_EQ(verdict.request, 0u);
  // The process wakes up, but the others have been told.
  say(2, {FrameKind::heartbeat, 0, 44, "", ""});
  machine_.disconnect(2, "its connection ended");
  collect();
  EXPECT_TRUE(heard(1).empty());
  EXPECT_TRUE(heard(2).empty());
  EXPECT_EQ(machine_.lost(), 1u);
}

TEST_F(MachineTest, ABrokenConnectionIsALossAtOnce) {
  connect(1, 0);
  connect(2, 1, "server");
  machine_.disconnect(2, "its connection ended");
  collect();
  EXPECT_EQ(entry(1, "0/lost/server1"), "n1\n0\nits connection ended");
}

TEST_F(MachineTest, AFarewellAndToolsAreNoLosses) {
  connect(1, 0);
  connect(2, 1);
  connect(3, -1, "agent", kAnyEpoch);
  say(2, {FrameKind::farewell, 2, 0, "", ""});
  EXPECT_EQ(last(2).kind, FrameKind::done);
  EXPECT_EQ(entry(1, "0/ended/worker1"), "n1");
  machine_.disconnect(2, "its connection ended");
  machine_.disconnect(3, "its connection ended");
  tick(500);
  connect(4, -1, "agent", kAnyEpoch);
  tick(400);
  EXPECT_EQ(machine_.lost(), 0u);
  EXPECT_EQ(machine_.clients(), 2u);
  say(1, {FrameKind::heartbeat, 0, 0, "", ""});
  machine_.disconnect(1, "its connection ended");
  EXPECT_EQ(machine_.next_tick_ms(), std::nullopt);  // nobody is left who must send heartbeats
  tick(100000);
  EXPECT_EQ(machine_.clients(), 1u);
  EXPECT_EQ(machine_.lost(), 1u);
}

TEST_F(MachineTest, WhatAnAgentPublishedStays) {
  connect(1, -1, "agent");
  connect(2, 1);
  say(1, {FrameKind::put, 2, 0, "0/lost/worker1", "n1\n0\nkilled by signal 9"});
  machine_.disconnect(2, "its connection ended");
  collect();
  EXPECT_EQ(entry(1, "0/lost/worker1"), "n1\n0\nkilled by signal 9");
}

TEST_F(MachineTest, LossesOfEarlierEpochsAreNotPublished) {
  connect(1, 0);
  machine_.set_epoch(1);
  connect(2, 0, "worker", 1);
  machine_.disconnect(1, "its connection ended");
  collect();
  EXPECT_EQ(entry(2, "0/lost/worker0"), "no entry");
  machine_.disconnect(2, "its connection ended");
  connect(3, -1, "agent");
  EXPECT_EQ(entry(3, "1/lost/worker0"), "n0\n0\nits connection ended");
}

TEST_F(MachineTest, AStopOfTheServerItselfIsNoSilenceOfTheClients) {
  connect(1, 0);
  now_ += 50000;
  connect(2, 1);  // it was accepted after the stop, and gets no time in advance
  machine_.excuse(49900, now_);
  tick(0);
  EXPECT_EQ(machine_.lost(), 0u);
  tick(900);
  EXPECT_EQ(machine_.lost(), 1u);
  tick(100);
  EXPECT_EQ(machine_.lost(), 2u);
}

TEST_F(MachineTest, ClientsThatBreakTheProtocolAreClosed) {
  const std::vector<Frame> bad_first = {{FrameKind::heartbeat, 0, 0, "", ""},
                                        {FrameKind::put, 1, 0, "k", "v"},
                                        {FrameKind::value, 1, 0, "k", "v"},
                                        {FrameKind::join, 1, 0, "", "n1"},
                                        {FrameKind::join, 1, 0, "Worker 1", "n1"},
                                        {FrameKind::join, 1, 0, "worker/1", "n1"},
                                        {FrameKind::join, 1, 0, std::string(33, 'a'), "n1"},
                                        {FrameKind::join, 1, 0, "worker", "n1\nlines"},
                                        {FrameKind::join, 1, 0, "worker", std::string(257, 'a')}};
  uint64_t id = 10;
  for (const Frame& frame : bad_first) {
    machine_.connect(++id, {0, 5}, now_);
    say(id, frame);
    EXPECT_TRUE(closed_.contains(id)) << to_string(frame.kind);
    EXPECT_EQ(last(id).request, 0u);
  }
  EXPECT_EQ(machine_.lost(), 0u);  // they never joined
  for (const Frame& frame :
       {Frame{FrameKind::join, 1, 0, "worker", "n1"}, Frame{FrameKind::changed, 1, 0, "", ""}}) {
    ++id;
    connect(id, static_cast<int32_t>(id));
    say(id, frame);
    EXPECT_TRUE(closed_.contains(id));
  }
  EXPECT_EQ(machine_.lost(), 2u);
  EXPECT_EQ(machine_.clients(), 0u);
}

TEST_F(MachineTest, AnyFramesInAnyOrderLeaveItConsistent) {
  std::mt19937 random(11);
  std::set<uint64_t> there;
  for (int round = 0; round < 20000; ++round) {
    const uint64_t id = random() % 6;
    switch (random() % 8) {
      case 0:
        if (there.insert(id).second) machine_.connect(id, {0, static_cast<int32_t>(random() % 3) - 1}, now_);
        break;
      case 1:
        if (random() % 4 == 0) {
          machine_.disconnect(id, "ended");
          there.erase(id);
        }
        break;
      case 2:
        now_ += random() % 300;
        machine_.tick(now_);
        break;
      default: {
        const auto kind =
            static_cast<FrameKind>(random() % 7 == 0 ? 1 + random() % kFrameKinds : 1 + random() % 7);
        const std::string key(random() % 2, static_cast<char>('a' + random() % 3));
        machine_.receive(id,
                         {kind, random() % 5, static_cast<int64_t>(random() % 5),
                          kind == FrameKind::join ? "w" : key, "v"},
                         now_);
      }
    }
    const auto actions = machine_.take();
    for (const uint64_t closed : actions.close) EXPECT_EQ(there.erase(closed), 1u);
    EXPECT_EQ(machine_.clients(), there.size());
  }
}

}  // namespace
}  // namespace mx::comm
