// Ranks that are processes: killed, stopped, leaving, waiting, and without memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "tests/comm/shm/forked_ranks.h"
#include "tests/support/forking.h"

namespace mx::comm::testing {
namespace {

void add_up(Communicator& group, size_t count, const std::string& what, int64_t timeout_ms = 0) {
  std::vector<float> values(count, static_cast<float>(group.rank() + 1));
  CallOptions options;
  options.what = what;
  options.timeout_ms = timeout_ms;
  group.allreduce(values.data(), values.data(), count, Type::f32, options);
  const auto ranks = static_cast<float>(group.size());
  for (const float v : values)
    if (v != ranks * (ranks + 1) / 2) throw Error("wrong sum " + std::to_string(v));
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos ? "" : "'" + part + "' is not in '" + text + "'";
}

TEST(ShmProcesses, CombineBuffersOfAllSizes) {
  ForkedRanks ranks(3, {}, [](Communicator& group, const ForkedRanks::Say&) {
    for (const size_t count : {0, 1, 7, 1000, 5000, 70'000, 1'000'003}) add_up(group, count, "w");
    group.barrier();
  });
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.line(r), "end");
}

TEST(ShmProcesses, AForkedChildHarmsNoOtherProcess) {
  const ShmGroup memory(2);
  ForkedRanks ranks(2, {}, [&](Communicator& outer, const ForkedRanks::Say& say) {
    std::shared_ptr<Communicator> group = memory.join(outer.rank());
    constexpr size_t kCount = 10'000;
    std::shared_ptr<void> buffer = group->allocate(kCount * sizeof(float));
    float* const values = static_cast<float*>(buffer.get());
    std::fill_n(values, kCount, 1.f);
    std::promise<void> started;  // with a thread, which the child will not have
    Request barrier;
    barrier.done = [&](std::exception_ptr) { started.set_value(); };
    group->start(std::move(barrier));
    started.get_future().wait();
    if (group->rank() == 0)
      say(test::run_in_child([&] {
        const bool refused = test::is_refused([&] { group->barrier(); });
        buffer = nullptr;
        group = nullptr;
        return refused ? 0 : 1;
      }));
    group->allreduce(values, values, kCount, Type::f32);
    say(std::all_of(values, values + kCount, [](float v) { return v == 2.f; }) ? "sum" : "wrong sum");
  });
  EXPECT_EQ(ranks.line(0), "exit code 0");
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.line(r), "sum");
}

TEST(ShmProcesses, SignalsDoNotKeepThemFromSharingMemory) {
  ForkedRanks ranks(2, {}, [](Communicator& group, const ForkedRanks::Say& say) {
    // As a profiler's timer does, also to system calls that are not restarted.
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval timer{{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &timer, nullptr);
    const std::shared_ptr<void> buffer = group.allocate(size_t{64} << 20);
    for (const size_t count : {1, 5000, 1'000'003}) add_up(group, count, "w");
    const itimerval none{};
    setitimer(ITIMER_REAL, &none, nullptr);
    say(is_arena(buffer.get()) ? "arena" : "plain memory");
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.line(r), "arena");
}

TEST(ShmProcesses, AKilledRankIsNamedByTheSurvivors) {
  for (const size_t count : {size_t{10}, size_t{1'000'000}}) {
    ForkedRanks ranks(3, {}, [&](Communicator& group, const ForkedRanks::Say& say) {
      add_up(group, count, "first");
      say("ready");
      if (group.rank() == 2) pause();
      add_up(group, count, "second");
    });
    for (int r = 0; r < 3; ++r) ASSERT_EQ(ranks.line(r), "ready");
    ranks.signal(2, SIGKILL);
    for (int r = 0; r < 2; ++r) {
      const std::string line = ranks.line(r);
      EXPECT_EQ(contains(line, "PeerLost: [allreduce] rank 2 on host "), "");
      EXPECT_EQ(contains(line, "(process " + std::to_string(ranks.process(2)) + ")"), "");
      EXPECT_EQ(contains(line, "'second'"), "");
      EXPECT_EQ(ranks.line(r), "end");
    }
  }
}

TEST(ShmProcesses, ARankThatLosesAPeerNamesItToThoseThatWaitForTheRank) {
  ForkedRanks ranks(3, {}, [&](Communicator& group, const ForkedRanks::Say& say) {
    say("ready");
    if (group.rank() == 2) pause();
    float x = 0;
    if (group.rank() == 0) group.receive(&x, 1, Type::f32, 1);
    if (group.rank() == 1) group.receive(&x, 1, Type::f32, 2);
  });
  for (int r = 0; r < 3; ++r) ASSERT_EQ(ranks.line(r), "ready");
  ranks.signal(2, SIGKILL);
  EXPECT_EQ(contains(ranks.line(1), "PeerLost: [receive] rank 2 on host "), "");
  EXPECT_EQ(contains(ranks.line(0), "PeerLost: [receive] rank 2 on host "), "");
}

TEST(ShmProcesses, AStoppedRankShowsAsTimeout) {
  ForkedRanks ranks(3, {}, [](Communicator& group, const ForkedRanks::Say& say) {
    add_up(group, 100, "first");
    say("ready");
    if (group.rank() == 1) pause();
    add_up(group, 100, "second", 300);
  });
  for (int r = 0; r < 3; ++r) ASSERT_EQ(ranks.line(r), "ready");
  ranks.signal(1, SIGSTOP);
  // The other one either runs into its own limit, or learns that this one has given up.
  const std::string a = ranks.line(0), b = ranks.line(2);
  EXPECT_TRUE(contains(a, "Timeout: ").empty() || contains(b, "Timeout: ").empty()) << a << "\n" << b;
  for (const std::string& line : {a, b}) EXPECT_EQ(contains(line, "rank 1 on host "), "");
}

// A rank that cannot look whether another one lives must not take it for lost.
TEST(ShmProcesses, ARankWithoutDescriptorsGoesOnWaiting) {
  const ShmGroup memory(2);
  ForkedRanks ranks(2, {}, [&](Communicator& outer, const ForkedRanks::Say& say) {
    const int rank = outer.rank();
    if (rank == 0) {
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = 1;  // those that are open stay
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    const std::shared_ptr<Communicator> group = memory.join(rank);
    add_up(*group, 100, "first");
    for (const int late : {0, 1}) {
      if (rank == late) usleep(300'000);
      add_up(*group, 100, "later");
    }
    say("added");
  });
  for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.line(r), "added");
}

TEST(ShmProcesses, ARankThatLeavesIsNamed) {
  ForkedRanks ranks(2, {}, [](Communicator& group, const ForkedRanks::Say&) {
    add_up(group, 100, "first");
    if (group.rank() == 0) add_up(group, 100, "second");
  });
  EXPECT_EQ(ranks.line(1), "end");
  EXPECT_EQ(contains(ranks.line(0), "PeerLost: [allreduce] rank 1 on host "), "");
}

TEST(ShmProcesses, AWaitingRankSleeps) {
  ForkedRanks ranks(2, {}, [](Communicator& group, const ForkedRanks::Say& say) {
    group.barrier();
    if (group.rank() == 1) pause();
    const double before = cpu_seconds();
    CallOptions options;
    options.timeout_ms = 3000;
    try {
      group.barrier(options);
    } catch (const Timeout&) {
      say(cpu_seconds() - before < 0.15 ? "slept"
                                        : "span for " + std::to_string(cpu_seconds() - before) + " s");
    }
  });
  EXPECT_EQ(ranks.line(0), "slept");
}

TEST(ShmProcesses, RanksThatDisagreeBothDescribeBothCalls) {
  ForkedRanks ranks(3, {}, [](Communicator& group, const ForkedRanks::Say&) {
    add_up(group, 100, "first");
    add_up(group, group.rank() == 2 ? 8 : 7, "second");
  });
  for (int r = 0; r < 3; ++r) {
    const std::string line = ranks.line(r);
    EXPECT_EQ(contains(line, "ProtocolError: "), "");
    EXPECT_EQ(contains(line, "allreduce of 7 x f32 'second' on rank 0"), "");
    EXPECT_EQ(contains(line, "allreduce of 8 x f32 'second' on rank 2"), "");
  }
}

TEST(ShmProcesses, WithoutSharedMemoryOnOneRankAllUsePlainMemory) {
  ForkedRanks ranks(3, {}, [](Communicator& group, const ForkedRanks::Say& say) {
    int warnings = 0;
    set_log_sink([&](LogLevel, const std::string&) { ++warnings; });
    const std::shared_ptr<void> first = group.allocate(1 << 20);
    say(is_arena(first.get()) ? "arena" : "plain");
    if (group.rank() == 1) {
      rlimit limit{4096, 4096};
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    for (int i = 0; i < 2; ++i) {
      const std::shared_ptr<void> memory = group.allocate(1 << 20);
      say(is_arena(memory.get()) ? "arena" : "plain");
      auto* const values = static_cast<float*>(memory.get());
      std::fill_n(values, 1 << 18, 1.0f);
      group.allreduce(values, values, 1 << 18, Type::f32);
      if (values[0] != 3 || values[(1 << 18) - 1] != 3) say("wrong sum");
    }
    say(std::to_string(warnings));
    set_log_sink({});
  });
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(ranks.line(r), "arena");
    EXPECT_EQ(ranks.line(r), "plain");
    EXPECT_EQ(ranks.line(r), "plain");
    EXPECT_EQ(ranks.line(r), "1");
    EXPECT_EQ(ranks.line(r), "end");
  }
}

TEST(ShmProcesses, ALimitOfTheSizeOfFilesIsAnErrorNotASignal) {
  ForkedRanks ranks(1, {}, [](Communicator&, const ForkedRanks::Say& say) {
    rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      ShmGroup group(2);
    } catch (const CommunicationError& error) {
      say(error.what());
    }
  });
  EXPECT_EQ(contains(ranks.line(0), "ulimit -f"), "");
}

TEST(ShmProcesses, NothingRemains) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  {
    ForkedRanks ranks(2, {}, [](Communicator& group, const ForkedRanks::Say& say) {
      const std::shared_ptr<void> memory = group.allocate(1 << 20);
      say("ready");
      pause();
    });
    for (int r = 0; r < 2; ++r) EXPECT_EQ(ranks.line(r), "ready");
    for (int r = 0; r < 2; ++r) ranks.signal(r, SIGKILL);
  }
  EXPECT_EQ(open_files(), before);
  for (const char* const folder : {"/dev/shm", "/tmp"})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      EXPECT_EQ(entry.path().filename().string().find("mx-shm"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace mx::comm::testing
