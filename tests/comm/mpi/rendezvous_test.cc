// The conformance suite of rendezvous over what the processes of mpirun find through MPI alone: rank 0 runs
// the table, and MPI passes its address and the secret on.
//
// All processes make the table together. Then the test runs in one of them, while the others wait: in turn in
// that of rank 0, whose table it is, and in others.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/meeting_point.h"
#include "comm/module.h"
#include "comm/rendezvous/client.h"
#include "comm/rendezvous/server.h"
#include "engine/base/error.h"
#include "tests/comm/rank_processes.h"
#include "tests/comm/rendezvous/conformance.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

Place place_in_job() {
  Place place;
  place.started_by = "mpirun";
  place.rank = RankProcesses::of_job()->rank();
  place.size = RankProcesses::of_job()->size();
  return place;
}

/// Makes a table. A collective call. The table exists until the next call.
ConnectRendezvous connect_through_mpi() {
  static std::unique_ptr<RendezvousServer> server;
  const SharedRendezvous shared =
      share_over_mpi(load_module("mpi"), place_in_job(), false, [](const std::string& secret) {
        server = std::make_unique<RendezvousServer>(
            RendezvousServerOptions{.self = Identity{"job", secret, 0, -1, ""}});
        return server->address();
      });
  return [shared] {
    RendezvousClientOptions options;
    options.address = shared.address;
    options.self = Identity{"job", shared.secret, 0, -1, ""};
    options.host = "rank " + std::to_string(RankProcesses::of_job()->rank());
    return std::make_shared<RendezvousClient>(options, Deadline::after_ms(30000));
  };
}

RendezvousCase in_process_of(int rank) {
  return {"rank" + std::to_string(rank),
          [rank]() -> ConnectRendezvous {
            const RankProcesses& processes = *RankProcesses::of_job();
            if (rank >= processes.size()) return nullptr;
            ConnectRendezvous connect = connect_through_mpi();
            return rank == processes.rank() ? connect : nullptr;
          },
          meet_processes};
}

INSTANTIATE_TEST_SUITE_P(Mpi, RendezvousConformance, ::testing::Values(in_process_of(0), in_process_of(1)),
                         rendezvous_name);

std::string number_key(int rank) { return "0/number/" + std::to_string(rank); }

TEST(MpiRendezvous, AllProcessesShareTheTable) {
  RankProcesses& processes = *RankProcesses::of_job();
  const auto table = connect_through_mpi()();
  const auto size = static_cast<size_t>(processes.size());
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> seen;
  const uint64_t id = table->watch("0/number/", [&](std::string_view key, std::string_view value) {
    const std::lock_guard lock(mutex);
    seen.emplace(key, value);
    changed.notify_one();
  });
  processes.meet();  // all watches exist
  table->put(number_key(processes.rank()), std::to_string(processes.rank() * 11));
  for (int rank = 0; rank < processes.size(); ++rank)
    EXPECT_EQ(table->get(number_key(rank), Deadline::after_ms(60000)), std::to_string(rank * 11));
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return seen.size() == size; }));
  }
  table->unwatch(id);
  processes.meet();
}

TEST(MpiRendezvous, OfAllProcessesOneWritesAKey) {
  RankProcesses& processes = *RankProcesses::of_job();
  const auto table = connect_through_mpi()();
  std::vector<unsigned char> won{1};
  try {
    table->put("leader", std::to_string(processes.rank()));
  } catch (const InvalidState&) {
    won[0] = 0;
  }
  int winners = 0;
  for (const auto& of_rank : processes.exchange(won)) winners += of_rank[0];
  EXPECT_EQ(winners, 1);
  processes.meet();
}

TEST(MpiRendezvous, AllProcessesLearnThatTheFirstCannotStart) {
  RankProcesses& processes = *RankProcesses::of_job();
  const auto share = [&] {
    share_over_mpi(load_module("mpi"), place_in_job(), false,
                   [](const std::string&) -> std::string { throw InvalidArgument("no such interface"); });
  };
  const std::string text = processes.rank() == 0 ? test::error_of<InvalidArgument>(share)
                                                 : test::error_of<CommunicationError>(share);
  EXPECT_NE(text.find("no such interface"), std::string::npos) << text;
  processes.meet();
}

TEST(MpiRendezvous, ASecretThatIsKeptIsNotPassedOn) {
  RankProcesses& processes = *RankProcesses::of_job();
  const auto share = [&] {
    share_over_mpi(load_module("mpi"), place_in_job(), true, [](const std::string&) { return "address"; });
  };
  const std::string text = processes.rank() == 0 ? test::error_of<InvalidArgument>(share)
                                                 : test::error_of<CommunicationError>(share);
  EXPECT_NE(text.find("MX_SECRET_FILE"), std::string::npos) << text;
  processes.meet();
}

}  // namespace
}  // namespace mx::comm
