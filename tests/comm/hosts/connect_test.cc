#include "comm/hosts/connect.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/hosts/machine.h"
#include "comm/rendezvous/local.h"
#include "comm/transport_communicator.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "tests/comm/conformance.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

using test::contains;

/// The lines that are logged while this exists.
class LogLines {
 public:
  LogLines()
      : before_(set_log_sink([this](LogLevel, const std::string& text) {
          std::lock_guard lock(mutex_);
          lines_.push_back(text);
        })) {}
  ~LogLines() { set_log_sink(before_); }
  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;  // guarded by the mutex
  LogSink before_;
};

struct Connected {
  std::vector<std::unique_ptr<TcpTransport>> ranks;
  std::vector<std::exception_ptr> errors;

  /// For each rank, a letter per other rank: m for memory, t for TCP.
  std::string links() const {
    std::string text;
    for (const auto& rank : ranks) {
      if (rank == nullptr) return "an error";
      if (!text.empty()) text += ' ';
      for (int peer = 0; peer < rank->size(); ++peer)
        if (peer != rank->rank()) text += rank->shares_memory(peer) ? 'm' : 't';
    }
    return text;
  }
};

/// Connects ranks with these machines on a thread each. The first letter is the name of the host. Ranks
/// without a machine do not come.
Connected connect_machines(const std::vector<std::string>& machines, int64_t timeout_ms = 60000,
                           const TcpOptions& options = {}) {
  const auto rendezvous = make_local_rendezvous();
  Connected made;
  made.ranks.resize(machines.size());
  made.errors.resize(machines.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < machines.size(); ++rank)
    threads.emplace_back([&, rank] {
      if (machines[rank].empty()) return;
      TcpGroup group;
      group.rank = static_cast<int>(rank);
      group.size = static_cast<int>(machines.size());
      group.key = "world";
      group.host = machines[rank].substr(0, 1);
      group.machine = machines[rank];
      group.self.job = "job";
      group.self.secret = "a secret";
      try {
        made.ranks[rank] = connect_hosts(group, *rendezvous, Deadline::after_ms(timeout_ms), options);
      } catch (...) {
        made.errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return made;
}

/// Adds up numbers over all ranks, and destroys the transports.
void expect_sum(Connected& made) {
  std::vector<std::shared_ptr<Communicator>> group;
  for (auto& rank : made.ranks)
    group.push_back(std::make_shared<TransportCommunicator>(std::move(rank), 60000));
  const int size = static_cast<int>(group.size());
  expect_ranks(group, [&](int rank, Communicator& member) {
    std::vector<int32_t> values(30'000, rank + 1);
    member.allreduce(values.data(), values.data(), values.size(), Type::i32);
    EXPECT_EQ(values, std::vector<int32_t>(values.size(), size * (size + 1) / 2));
  });
}

TEST(HostsConnect, RanksOfAHostShareMemory) {
  const LogLines log;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"a", "a", "b", "b"}, "mtt mtt ttm ttm"},
      {{"a", "b", "a", "b"}, "tmt ttm mtt tmt"},
      {{"a", "a", "b"}, "mt mt tt"},
      {{"a", "a"}, "m m"},
  };
  for (const auto& [machines, links] : cases) {
    Connected made = connect_machines(machines);
    EXPECT_EQ(made.links(), links);
    for (const auto& rank : made.ranks) EXPECT_EQ(rank->type(), "shm+tcp");
    expect_sum(made);
  }
  EXPECT_TRUE(const_cast<LogLines&>(log).lines().empty());
}

TEST(HostsConnect, HostsWithOneRankEachUseTcp) {
  Connected made = connect_machines({"a", "b", "c"});
  EXPECT_EQ(made.links(), "tt tt tt");
  for (const auto& rank : made.ranks) EXPECT_EQ(rank->type(), "tcp");
  expect_sum(made);
}

// Both hosts have ranks in two containers.
TEST(HostsConnect, ContainersOfAHostUseTcpWithEachOtherAndSaySoOnce) {
  LogLines log;
  Connected made = connect_machines(
      {"a start1 4 5 0", "a start1 4 5 0", "a start1 7 5 0", "a start2 4 5 0", "a start2 4 5 0"});
  EXPECT_EQ(made.links(), "mttt mttt tttt tttm tttm");
  const std::vector<std::string> lines = log.lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "rank 0 shares no memory with the ranks 2,")) << lines[0];
  for (const auto& rank : made.ranks) {
    EXPECT_EQ(rank->machine(0) == rank->machine(1), true);
    EXPECT_EQ(rank->machine(0) == rank->machine(2), false);
  }
  expect_sum(made);
}

/// Lowers the limit of the size of files, so that the kernel gives no shared memory.
class NoSharedMemory {
 public:
  NoSharedMemory() {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit low = before_;
    low.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &low);
  }
  ~NoSharedMemory() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(HostsConnect, WithoutSharedMemoryTheRanksOfAHostUseTcpAndSaySoOnce) {
  LogLines log;
  Connected made;
  {
    const NoSharedMemory limit;
    made = connect_machines({"a", "a", "b", "a"});
  }
  EXPECT_EQ(made.links(), "ttt ttt ttt ttt");
  const std::vector<std::string> lines = log.lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "ranks 0, 1, 3 on a share no memory")) << lines[0];
  EXPECT_TRUE(contains(lines[0], "limit of the size of files")) << lines[0];
  // The groups of ranks that the algorithms see stay the hosts.
  for (const auto& rank : made.ranks) {
    EXPECT_EQ(rank->type(), "shm+tcp");
    EXPECT_EQ(rank->machine(0), rank->machine(3));
  }
  expect_sum(made);
}

TEST(HostsConnect, NamesTheRanksThatDidNotCome) {
  const Connected made = connect_machines({"a", "a", "", "b"}, 3000);
  for (const size_t rank : {0, 1, 3})
    test::expect_error<Timeout>("rank 2", [&] { std::rethrow_exception(made.errors[rank]); });
}

TEST(HostsMachine, DiffersByHostAndIsOneForThisProcess) {
  EXPECT_EQ(machine_of("a"), machine_of("a"));
  EXPECT_NE(machine_of("a"), machine_of("b"));
  EXPECT_EQ(machine_of("a").find('\n'), std::string::npos);
  EXPECT_TRUE(is_same_boot(machine_of("a"), machine_of("a")));
  EXPECT_FALSE(is_same_boot(machine_of("a"), machine_of("b")));
  EXPECT_TRUE(is_same_boot("a s 1 2 0", "a s 2 2 0"));
  EXPECT_FALSE(is_same_boot("a s 1 2 0", "a t 1 2 0"));
  EXPECT_FALSE(is_same_boot("a", "b"));
}

}  // namespace
}  // namespace mx::comm
