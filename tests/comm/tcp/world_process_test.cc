// world() in real processes: this program starts itself as the ranks of a job.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/server.h"
#include "comm/world.h"
#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/forking.h"

namespace mx::comm {
namespace {

using test::contains;

/// What a rank has written, and how it ended.
struct RankEnd {
  std::string output;
  int status = 0;  ///< of waitpid()
};

struct RankProcess {
  pid_t id = 0;
  int output = -1;

  /// Reads until `text` has been written, or to the end.
  std::string read_until(const std::string& text) const {
    std::string all;
    char byte = 0;
    while (!contains(all, text) && ::read(output, &byte, 1) == 1) all += byte;
    return all;
  }
  RankEnd end() const {
    RankEnd ended;
    char block[512];
    for (ssize_t n; (n = ::read(output, block, sizeof block)) > 0;)
      ended.output.append(block, static_cast<size_t>(n));
    ::close(output);
    ::waitpid(id, &ended.status, 0);
    return ended;
  }
};

/// Starts this program as a rank that runs the test WorldRank.DISABLED_<body>.
RankProcess start_rank(const std::string& body, std::vector<std::string> environment) {
  int pipe[2];
  EXPECT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    // Variables of gtest that choose tests would choose among those of the rank.
    if (!text.starts_with("GTEST_") && !text.starts_with("MX_")) environment.push_back(text);
  }
  const std::string filter = "--gtest_filter=WorldRank.DISABLED_" + body;
  std::vector<char*> variables;
  for (std::string& text : environment) variables.push_back(text.data());
  variables.push_back(nullptr);
  std::string program = "/proc/self/exe", option = "--gtest_also_run_disabled_tests", chosen = filter;
  char* arguments[] = {program.data(), option.data(), chosen.data(), nullptr};
  RankProcess rank;
  EXPECT_EQ(::posix_spawn(&rank.id, program.c_str(), &actions, nullptr, arguments, variables.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  rank.output = pipe[0];
  return rank;
}

class WorldProcess : public ::testing::TestWithParam<const char*> {
 protected:
  /// Starts the ranks of a job of its own.
  std::vector<RankProcess> start(const std::string& body, int size, int64_t timeout_ms = 60000) {
    RendezvousServerOptions options;
    options.self.job = "world-process";
    options.dead_after_ms = 20000;
    server_ = std::make_unique<RendezvousServer>(options);
    std::vector<RankProcess> ranks;
    for (int rank = 0; rank < size; ++rank) {
      const auto set = [](const std::string& name, const std::string& value) { return name + "=" + value; };
      const std::string n = std::to_string(size), r = std::to_string(rank);
      ranks.push_back(start_rank(
          body, {set("MX_RANK", r), set("MX_WORLD_SIZE", n), set("MX_LOCAL_RANK", r),
                 set("MX_JOB_ID", "world-process"), set("MX_LOCAL_WORLD_SIZE", n),
                 set("MX_RDZV", server_->address()), set("MX_TRANSPORT", GetParam()),
                 set("MX_TIMEOUT_MS", std::to_string(timeout_ms)), set("MX_DEAD_AFTER_MS", "20000")}));
    }
    return ranks;
  }
  std::unique_ptr<RendezvousServer> server_;
};

float world_sum() {
  const float one = 1;
  float sum = 0;
  world()->allreduce(&one, &sum, 1, Type::f32, {.what = "key7"});
  return sum;
}

void say(const std::string& text) {
  EXPECT_EQ(::write(1, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// The bodies of the ranks. They end with exit(), as a program does.

TEST(WorldRank, DISABLED_Sums) {
  const float sum = world_sum();
  say("type " + world()->type() + " sum " + std::to_string(static_cast<int>(sum)) + "\n");
  std::exit(sum == static_cast<float>(place().size) ? 0 : 1);
}

TEST(WorldRank, DISABLED_SumsBesideAForkedChild) {
  const std::shared_ptr<Communicator> group = world();
  const float first = world_sum();
  const auto child = [&]() -> int {
    int refused = 0;
    const std::function<void()> calls[] = {[] { world(); }, [] { new_group("tcp"); }, [] { rendezvous(); },
                                           [] { report_step(1); }, [&] { group->barrier(); }};
    for (const auto& call : calls) refused += test::is_refused(call);
    std::exit(place().size > 1 && refused == 5 ? 0 : 1);
  };
  say("child: " + test::run_in_child(child) + "\n");
  std::exit(first == world_sum() ? 0 : 1);
}

TEST(WorldRank, DISABLED_SumsForEver) {
  try {
    for (int64_t step = 1;; ++step) {
      report_step(step);
      world_sum();
      if (step == 3) say("running\n");
    }
  } catch (const PeerLost& error) {
    say(std::string("PeerLost: ") + error.what() + "\n");
    std::exit(3);
  } catch (const Timeout& error) {
    say(std::string("Timeout: ") + error.what() + "\n");
    std::exit(4);
  }
}

TEST_P(WorldProcess, RanksFindEachOtherAndEndWithoutALoss) {
  for (const int size : {2, 3}) {
    for (const RankProcess& rank : start("Sums", size)) {
      const RankEnd ended = rank.end();
      EXPECT_TRUE(contains(ended.output, std::string("type ") + GetParam() + " sum " + std::to_string(size)))
          << ended.output;
      EXPECT_EQ(ended.status, 0);
    }
    EXPECT_EQ(server_->counts().lost, 0u);
  }
}

TEST_P(WorldProcess, AForkedChildIsNoProcessOfTheJob) {
  for (const RankProcess& rank : start("SumsBesideAForkedChild", 2)) {
    const RankEnd ended = rank.end();
    EXPECT_TRUE(contains(ended.output, "child: exit code 0\n")) << ended.output;
    EXPECT_EQ(ended.status, 0);
  }
  EXPECT_EQ(server_->counts().lost, 0u);
}

TEST_P(WorldProcess, AKilledRankIsNamedByAllOthers) {
  const std::vector<RankProcess> ranks = start("SumsForEver", 3);
  for (const RankProcess& rank : ranks) rank.read_until("running\n");
  ::kill(ranks[1].id, SIGKILL);
  for (const size_t rank : {0u, 2u}) {
    const RankEnd ended = ranks[rank].end();
    EXPECT_TRUE(contains(ended.output, "PeerLost: ")) << ended.output;
    EXPECT_TRUE(contains(ended.output, "rank 1 on ")) << ended.output;
    EXPECT_EQ(WEXITSTATUS(ended.status), 3);
  }
  EXPECT_EQ(WTERMSIG(ranks[1].end().status), SIGKILL);
}

TEST_P(WorldProcess, AStoppedRankIsATimeout) {
  const std::vector<RankProcess> ranks = start("SumsForEver", 2, 4000);
  for (const RankProcess& rank : ranks) rank.read_until("running\n");
  ::kill(ranks[1].id, SIGSTOP);
  const RankEnd ended = ranks[0].end();
  EXPECT_TRUE(contains(ended.output, "Timeout: ")) << ended.output;
  EXPECT_TRUE(contains(ended.output, "rank 1")) << ended.output;
  EXPECT_TRUE(contains(ended.output, "key7")) << ended.output;
  EXPECT_EQ(WEXITSTATUS(ended.status), 4);
  ::kill(ranks[1].id, SIGKILL);
  ranks[1].end();
}

INSTANTIATE_TEST_SUITE_P(Transports, WorldProcess, ::testing::Values("tcp", "shm", "shm+tcp"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

}  // namespace
}  // namespace mx::comm
