// The parts of mxrun that need no job.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "mxrun/binding.h"
#include "mxrun/channel.h"
#include "mxrun/environment.h"
#include "mxrun/options.h"
#include "mxrun/output.h"
#include "mxrun/plan.h"
#include "mxrun/process.h"

namespace mx::launch {
namespace {

using Shares = std::vector<std::vector<int>>;

TEST(BindingTest, CoresAreSharedEvenlyAndInOrder) {
  const std::vector<Core> four{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(share_cores(four, 1), (Shares{{0, 4, 1, 5, 2, 6, 3, 7}}));
  EXPECT_EQ(share_cores(four, 2), (Shares{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(share_cores(four, 3), (Shares{{0, 4, 1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(share_cores(four, 4), (Shares{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_TRUE(share_cores(four, 5).empty());
  EXPECT_TRUE(share_cores(four, 0).empty());
}

TEST(BindingTest, EveryCoreHasExactlyOneOwner) {
  for (int cores = 1; cores <= 20; ++cores) {
    std::vector<Core> all;
    for (int core = 0; core < cores; ++core) all.push_back({core});
    for (int workers = 1; workers <= cores; ++workers) {
      std::vector<int> seen;
      for (const std::vector<int>& share : share_cores(all, workers)) {
        EXPECT_GE(static_cast<int>(share.size()), cores / workers);
        EXPECT_LE(static_cast<int>(share.size()), cores / workers + 1);
        seen.insert(seen.end(), share.begin(), share.end());
      }
      ASSERT_EQ(static_cast<int>(seen.size()), cores);
      for (int core = 0; core < cores; ++core) EXPECT_EQ(seen[static_cast<size_t>(core)], core);
    }
  }
}

TEST(BindingTest, ThisMachineHasCores) {
  EXPECT_FALSE(usable_cores().empty());
  EXPECT_EQ(threads_per_worker(8, 3), 2);
  EXPECT_EQ(threads_per_worker(2, 3), 1);
}

TEST(PlanTest, ArrivesAsItWasSent) {
  NodePlan plan;
  plan.job = "j";
  plan.node = 2;
  plan.nodes = 3;
  plan.host = "n2";
  plan.argv = {"./program", "", "tab\there", "\xff\xfe not utf-8"};
  plan.folder = "/tmp/a b";
  plan.environment = {{"A", "1=2"}, {"B", "\n"}};
  plan.ranks = {{Role::worker, 4, 0, 17}, {Role::server, 1, 0, 18}};
  plan.workers = 6;
  plan.servers = 2;
  plan.local_workers = 1;
  plan.local_servers = 1;
  plan.bind = false;
  plan.epoch = 5;
  plan.restarts = 4;
  plan.rendezvous = "10.0.0.1:1234";
  plan.master_port = 99;
  plan.secret = std::string("\0\x80secret", 8);
  plan.timeout_ms = 1;
  plan.heartbeat_ms = 2;
  plan.dead_after_ms = 3;
  plan.grace_ms = 4;
  plan.output = {true, true, "/logs", false, {1, 2}};
  const NodePlan got = plan_from_json(to_json(plan));
  EXPECT_EQ(to_json(got), to_json(plan));
  EXPECT_EQ(got.argv, plan.argv);
  EXPECT_EQ(got.secret, plan.secret);
  EXPECT_EQ(got.environment, plan.environment);
  EXPECT_EQ(got.ranks[1].role, Role::server);
  EXPECT_EQ(got.output.shown, plan.output.shown);
}

TEST(PlanTest, OtherTextsAreRefused) {
  for (const char* text : {"", "{", "[]", "{}", R"({"job":1})"}) {
    EXPECT_THROW(plan_from_json(text), ProtocolError) << text;
  }
  NodePlan plan;
  plan.argv = {"./program"};
  const std::string whole = to_json(plan);
  EXPECT_EQ(plan_from_json(whole).argv, plan.argv);
  EXPECT_THROW(plan_from_json(whole.substr(0, whole.size() / 2)), ProtocolError);
}

// An agent uses the members of a plan as they are.
TEST(PlanTest, MembersOutOfTheirRangeAreNamed) {
  const auto refusal = [](const std::function<void(NodePlan&)>& change) {
    NodePlan plan;
    plan.argv = {"./program"};
    plan.ranks = {{Role::worker, 0, 0, 0}};
    change(plan);
    try {
      plan_from_json(to_json(plan));
    } catch (const ProtocolError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal([](NodePlan&) {}), "accepted");
  EXPECT_NE(refusal([](NodePlan& p) { p.argv.clear(); }).find("'argv': expected a program"),
            std::string::npos);
  EXPECT_NE(
      refusal([](NodePlan& p) { p.ranks[0].rank = 1; }).find("'rank': expected a whole number from 0 to 0"),
      std::string::npos);
  EXPECT_NE(refusal([](NodePlan& p) { p.ranks[0].role = static_cast<Role>(2); }).find("'role'"),
            std::string::npos);
  EXPECT_NE(refusal([](NodePlan& p) { p.ranks[0].local_rank = -1; }).find("'local rank'"), std::string::npos);
  EXPECT_NE(refusal([](NodePlan& p) { p.heartbeat_ms = 0; }).find("'heartbeat_ms'"), std::string::npos);
  EXPECT_NE(refusal([](NodePlan& p) {
              p.environment = {{"A=B", ""}};
            }).find("'environment'"),
            std::string::npos);
  EXPECT_NE(refusal([](NodePlan& p) { p.node = 1; }).find("'node'"), std::string::npos);
}

TEST(ChannelTest, MessagesArriveWholeAndInOrder) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  auto first = socket_channel(ends[0]), second = socket_channel(ends[1]);
  std::string message;
  EXPECT_FALSE(second->receive(&message));
  const std::string big(50000, 'x');
  first->send("one");
  first->send("");
  first->send(big);
  ASSERT_TRUE(second->receive(&message));
  EXPECT_EQ(message, "one");
  ASSERT_TRUE(second->receive(&message));
  EXPECT_EQ(message, "");
  ASSERT_TRUE(second->receive(&message));
  EXPECT_EQ(message, big);
  EXPECT_FALSE(second->receive(&message));
  EXPECT_FALSE(second->closed());
  first->send("last");
  first.reset();
  ASSERT_TRUE(second->receive(&message));
  EXPECT_EQ(message, "last");
  EXPECT_FALSE(second->receive(&message));
  EXPECT_TRUE(second->closed());
  second->send("to nobody");
}

TEST(ChannelTest, AnImpossibleLengthClosesIt) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  auto channel = socket_channel(ends[1]);
  const uint32_t size = 0xffffffff;
  ASSERT_EQ(write(ends[0], &size, sizeof(size)), 4);
  std::string message;
  EXPECT_FALSE(channel->receive(&message));
  EXPECT_TRUE(channel->closed());
  close(ends[0]);
}

/// A stream into a pipe, and what comes out of its outlet.
struct Pipes {
  Pipes() {
    EXPECT_EQ(pipe2(in, O_CLOEXEC | O_NONBLOCK), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
  }
  ~Pipes() {
    if (in[1] >= 0) close(in[1]);
    close(out[0]);
    close(out[1]);
  }
  void type(const std::string& text) {
    EXPECT_EQ(write(in[1], text.data(), text.size()), ssize_t(text.size()));
  }
  std::string printed(Outlet* outlet) {
    std::string all;
    char block[8192];
    while (!outlet->empty()) {
      outlet->write_some();
      for (ssize_t got = 0; (got = read(out[0], block, sizeof(block))) > 0;) all.append(block, size_t(got));
    }
    return all;
  }
  int in[2], out[2];
};

TEST(OutputTest, LinesAreTaggedAndKept) {
  Pipes pipes;
  Outlet outlet(pipes.out[1]);
  RankStream::Settings settings;
  settings.tag = true;
  settings.keep_tail = true;
  settings.label = "1:2";
  RankStream stream(pipes.in[0], &outlet, settings);
  EXPECT_FALSE(stream.read_some(1000));
  pipes.type("a\nb");
  EXPECT_TRUE(stream.read_some(1000));
  EXPECT_EQ(pipes.printed(&outlet), "[1:2] a\n");
  EXPECT_EQ(stream.tail(), (std::vector<std::string>{"a", "b"}));
  pipes.type("c\n\n");
  EXPECT_TRUE(stream.read_some(1000));
  EXPECT_EQ(pipes.printed(&outlet), "[1:2] bc\n[1:2] \n");
  for (int i = 0; i < 30; ++i) pipes.type(std::to_string(i) + "\n");
  stream.read_some(1000);
  EXPECT_EQ(stream.tail().size(), RankStream::kTailLines);
  EXPECT_EQ(stream.tail().front(), "10");
  pipes.type("end");
  close(pipes.in[1]);
  pipes.in[1] = -1;
  while (stream.open()) stream.read_some(1000);
  EXPECT_NE(pipes.printed(&outlet).find("[1:2] end\n"), std::string::npos);
}

TEST(OutputTest, AFullQueueStopsReading) {
  Pipes pipes;
  Outlet outlet(pipes.out[1]);
  RankStream stream(pipes.in[0], &outlet, RankStream::Settings{});
  EXPECT_TRUE(stream.wants());
  const std::string block(Outlet::kLongestQueue, 'x');
  outlet.add(block.data(), block.size());
  EXPECT_TRUE(outlet.full());
  EXPECT_FALSE(stream.wants());
  EXPECT_EQ(pipes.printed(&outlet).size(), block.size());
  EXPECT_TRUE(stream.wants());
}

TEST(OutputTest, OnlyALineThatTheOutletHasCutKeepsTheOtherOneWaiting) {
  Pipes pipes;
  Outlet outlet(pipes.out[1]);
  // The rank has not finished its line, and whatever it says next may come late or never.
  outlet.add("a", 1);
  EXPECT_FALSE(outlet.within_line());
  EXPECT_EQ(pipes.printed(&outlet), "a");
  EXPECT_FALSE(outlet.within_line());
  outlet.add("b", 1);
  EXPECT_FALSE(outlet.within_line());
  // A pipe takes a part of a long line.
  const std::string line(100'000, 'x');
  outlet.add(line.data(), line.size());
  outlet.write_some();
  EXPECT_TRUE(outlet.within_line());
  EXPECT_EQ(pipes.printed(&outlet).size(), 1 + line.size());
  EXPECT_FALSE(outlet.within_line());
}

TEST(OutputTest, WhatIsNotShownIsReadAllTheSame) {
  Pipes pipes;
  Outlet outlet(pipes.out[1]);
  RankStream::Settings settings;
  settings.shown = false;
  RankStream stream(pipes.in[0], &outlet, settings);
  const std::string block(Outlet::kLongestQueue, 'x');
  outlet.add(block.data(), block.size());
  EXPECT_TRUE(stream.wants());
  pipes.type("a\n");
  EXPECT_TRUE(stream.read_some(1000));
}

TEST(ProgramTest, IsFoundAsAShellFindsIt) {
  EXPECT_EQ(find_program("sh", "/nowhere:/bin", "").path, "/bin/sh");
  EXPECT_EQ(find_program("/bin/sh", nullptr, "").path, "/bin/sh");
  EXPECT_EQ(find_program("sh", "/nowhere", "").exit_code, 127);
  EXPECT_EQ(find_program("/bin", nullptr, "").exit_code, 126);
  EXPECT_EQ(find_program("./sh", nullptr, "/bin").path, "./sh");
}

TEST(ProgramTest, AStartThatFailsLeavesNoDescriptorsOpen) {
  const auto next_fd = [] {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
  };
  SpawnRequest request;
  request.path = "/bin/true";
  request.argv = {"true"};
  request.secret = "secret";
  request.secret_fd = 3;
  const int first = next_fd();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  for (int room = 0; room < 8; ++room) {
    const rlimit low{static_cast<rlim_t>(first + room), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    EXPECT_THROW(spawn(request), OutOfMemory) << room;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_EQ(next_fd(), first) << room;
  }
  request.path = "/no/such/program";
  EXPECT_EQ(spawn(request).exit_code, 127);
  EXPECT_EQ(next_fd(), first);
}

TEST(RankListTest, IsParsed) {
  EXPECT_EQ(parse_rank_list("0,2-4"), (std::vector<int>{0, 2, 3, 4}));
  EXPECT_TRUE(parse_rank_list("").empty());
  for (const char* text : {"a", "1,,2", "3-2", "-1", "1-", "1;2", " 1"}) {
    EXPECT_THROW(parse_rank_list(text), InvalidArgument) << text;
  }
}

TEST(OptionsTest, TimesHaveUnits) {
  const auto timeout = [](const char* text) {
    const char* const argv[] = {"mxrun", "--timeout", text, "true"};
    return parse_options(4, argv).options.timeout_ms;
  };
  EXPECT_EQ(timeout("2"), 2000);
  EXPECT_EQ(timeout("0.5"), 500);
  EXPECT_EQ(timeout("20ms"), 20);
  EXPECT_EQ(timeout("1.5m"), 90000);
  EXPECT_EQ(timeout("1h"), 3600000);
  const char* const wrong[] = {"mxrun", "--timeout", "1 day", "true"};
  EXPECT_EQ(parse_options(4, wrong).exit_code, 2);
}

}  // namespace
}  // namespace mx::launch
