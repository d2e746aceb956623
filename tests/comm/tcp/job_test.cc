#include "comm/job.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/host_name.h"
#include "comm/meeting_point.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/lost.h"
#include "comm/rendezvous/server.h"
#include "comm/start.h"
#include "comm/transport_communicator.h"
#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

using test::contains;

Place job_place(int rank, int size, const std::string& rendezvous) {
  Place place;
  place.started_by = "mxrun";
  place.rank = place.local_rank = rank;
  place.size = place.local_size = place.workers = size;
  place.job = "job-test";
  place.rendezvous = rendezvous;
  place.heartbeat_ms = 100;
  place.dead_after_ms = 20000;  // so slow that a busy machine does not lose a rank
  return place;
}

std::unique_ptr<RendezvousServer> job_server() {
  RendezvousServerOptions options;
  options.self.job = "job-test";
  options.dead_after_ms = 20000;
  return std::make_unique<RendezvousServer>(options);
}

void on_job_ranks(int size, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(f, rank);
  for (std::thread& thread : threads) thread.join();
}

float sum_over(Communicator& group, float value) {
  float sum = 0;
  group.allreduce(&value, &sum, 1, Type::f32);
  return sum;
}

TEST(Job, WorldAndNewGroupsConnectAllWorkers) {
  const auto server = job_server();
  on_job_ranks(3, [&](int rank) {
    Job job(job_place(rank, 3, server->address()));
    const auto world = job.world();
    EXPECT_EQ(world, job.world());
    EXPECT_EQ(world->rank(), rank);
    EXPECT_EQ(world->size(), 3);
    EXPECT_EQ(world->host(1), host_name());
    EXPECT_EQ(sum_over(*world, static_cast<float>(rank + 1)), 6);
    const auto second = job.new_group("tcp"), third = job.new_group("tcp");
    EXPECT_EQ(second->type(), "tcp");
    EXPECT_EQ(sum_over(*third, 1), 3);
    EXPECT_EQ(sum_over(*second, 2), 6);
    job.leave(true);
  });
  EXPECT_EQ(server->counts().lost, 0u);
}

TEST(Job, AProcessThatIsAloneNeedsNobody) {
  Job job{Place()};
  EXPECT_EQ(job.rendezvous(), nullptr);
  const auto world = job.world();
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(sum_over(*world, 5), 5);
  job.report_step(3);
  job.leave(true);
  test::expect_error<InvalidState>("process", [&] { job.new_group("auto"); });
}

CostModel model_of(Communicator& group) { return dynamic_cast<TransportCommunicator&>(group).model(); }

TEST(Job, FitsTheCostModelOnceAndAlikeForAllGroups) {
  const auto server = job_server();
  std::vector<std::string> tables(3);
  on_job_ranks(3, [&](int rank) {
    Job job(job_place(rank, 3, server->address()));
    const auto first = job.new_group("tcp"), second = job.new_group("tcp");
    const CostModel model = model_of(*first);
    EXPECT_FALSE(model.samples().empty());
    EXPECT_EQ(model_of(*second).describe(), model.describe());
    tables[static_cast<size_t>(rank)] = model.describe();
    EXPECT_EQ(sum_over(*second, 1), 3);
    job.leave(true);
  });
  EXPECT_EQ(tables[0], tables[1]);
  EXPECT_EQ(tables[0], tables[2]);
}

TEST(Job, EachTypeOfGroupHasItsOwnCostModel) {
  const auto server = job_server();
  on_job_ranks(3, [&](int rank) {
    Job job(job_place(rank, 3, server->address()));
    const auto sockets = job.new_group("tcp"), memory = job.new_group("shm+tcp");
    EXPECT_EQ(memory->type(), "shm+tcp");
    EXPECT_FALSE(model_of(*memory).samples().empty());
    EXPECT_NE(model_of(*sockets).describe(), model_of(*memory).describe());
    EXPECT_EQ(sum_over(*memory, static_cast<float>(rank + 1)), 6);
    job.leave(true);
  });
}

TEST(Job, TheSettingOfRankZeroDecidesWhetherTheCostModelIsFitted) {
  const auto server = job_server();
  on_job_ranks(2, [&](int rank) {
    Place place = job_place(rank, 2, server->address());
    place.fit_cost_model = rank != 0;
    Job job(place);
    const auto group = job.new_group("tcp");
    EXPECT_TRUE(model_of(*group).samples().empty());
    EXPECT_EQ(sum_over(*group, 1), 2);
    job.leave(true);
  });
}

TEST(Job, ALostProcessEndsAllGroupsAndIsNamed) {
  const auto server = job_server();
  on_job_ranks(3, [&](int rank) {
    auto job = std::make_unique<Job>(job_place(rank, 3, server->address()));
    const auto world = job->world();
    job->report_step(17);
    EXPECT_EQ(sum_over(*world, 1), 3);
    if (rank == 2) {
      job.reset();  // ends without farewell
      world->abort(std::make_exception_ptr(InvalidState("gone")));
      return;
    }
    std::string message;
    try {
      sum_over(*world, 1);
      ADD_FAILURE() << "expected an error";
    } catch (const PeerLost& error) {
      message = error.what();
    }
    EXPECT_TRUE(contains(message, "rank 2 on")) << message;
    EXPECT_TRUE(contains(message, host_name())) << message;
    // A group that is made afterwards fails at once, too.
    EXPECT_THROW(job->new_group("tcp"), PeerLost);
    job->leave(false);
  });
}

// A process that fails because of another one ends, too. Whoever learns only of that end is told of the first
// cause.
TEST(Job, TheLossOfAProcessThatFailedBecauseOfAnotherNamesThatOne) {
  const auto server = job_server();
  std::latch done(1);
  on_job_ranks(3, [&](int rank) {
    auto job = std::make_unique<Job>(job_place(rank, 3, server->address()));
    const auto world = job->world();
    EXPECT_EQ(sum_over(*world, 1), 3);
    if (rank == 2) {
      report_consequence(*job->rendezvous(), {0, {"worker", 2}, {"worker", 1}});
      job.reset();  // ends without farewell
    } else if (rank == 1) {
      done.wait();
    } else {
      std::string message;
      for (int i = 0; i < 20000 && message.empty(); ++i) {
        try {
          job->check();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } catch (const PeerLost& error) {
          message = error.what();
        }
      }
      EXPECT_TRUE(contains(message, "rank 2 on")) << message;
      EXPECT_TRUE(contains(message, "because of rank 1 on host " + host_name())) << message;
      done.count_down();
    }
    if (job) job->leave(false);
  });
}

TEST(Job, NamesTheWorkersThatDidNotCome) {
  const auto server = job_server();
  Place place = job_place(0, 3, server->address());
  place.timeout_ms = 2000;
  Job job(place);
  test::expect_error<Timeout>("rank 1, rank 2", [&] { job.world(); });
  test::expect_error<Timeout>("rank 1, rank 2", [&] { job.world(); });  // the same again, at once
  test::expect_error<Timeout>("from rank 1, rank 2", [&] { job.new_group("tcp"); });
}

TEST(Job, AMissingRendezvousIsAnError) {
  Place place = job_place(0, 2, "127.0.0.1:1");
  place.timeout_ms = 200;
  Job job(place);
  test::expect_error<Timeout>("127.0.0.1:1", [&] { job.world(); });
}

TEST(Job, SeveralHostsNeedASecret) {
  Place place = job_place(0, 2, "127.0.0.1:1");
  place.local_size = 1;
  Job job(place);
  test::expect_error<InvalidArgument>("secret", [&] { job.world(); });
}

TEST(Job, AServerHasNoWorld) {
  const auto server = job_server();
  Place place = job_place(0, 2, server->address());
  place.role = Role::server;
  Job job(place);
  test::expect_error<InvalidState>("server 0", [&] { job.world(); });
  EXPECT_NE(job.rendezvous(), nullptr);
  job.leave(true);
}

TEST(Job, AnUnknownTransportIsNamed) {
  Job job{Place()};
  test::expect_error<InvalidArgument>("'pigeon'", [&] { job.new_group("pigeon"); });
}

/// A job whose port is free at the moment.
std::string job_with_a_free_port() {
  for (int step = 0;; ++step) {
    const std::string job = "slurm-" + std::to_string(::getpid()) + "." + std::to_string(step);
    try {
      listen_at("127.0.0.1", port_of_job(job));
      return job;
    } catch (const CommunicationError&) {
      if (step == 100) throw;
    }
  }
}

TEST(Job, UnderSrunRankZeroRunsTheRendezvousUntilAllHaveLeft) {
  const std::string name = job_with_a_free_port();
  on_job_ranks(3, [&](int rank) {
    Place place = job_place(rank, 3, "");
    place.started_by = "srun";
    place.job = name;
    Job job(place);
    EXPECT_EQ(sum_over(*job.world(), 1), 3);
    job.leave(true);
  });
}

TEST(Start, FindsTheFirstNodeOfAList) {
  EXPECT_EQ(first_node("n1"), "n1");
  EXPECT_EQ(first_node("n1,n2"), "n1");
  EXPECT_EQ(first_node("n[07-9,12],m1"), "n07");
  EXPECT_EQ(first_node("n[3]"), "n3");
  EXPECT_EQ(first_node("rack[2-3]n[05,7]-ib"), "rack2n05-ib");
  for (const char* wrong : {"", ",n1", "n[", "n[]", "n[1", "n]1"})
    EXPECT_THROW(first_node(wrong), InvalidArgument) << wrong;
}

TEST(Start, ThePortOfAJobIsOutsideThoseOfTheSystem) {
  EXPECT_EQ(port_of_job("slurm-77.0"), port_of_job("slurm-77.0"));
  EXPECT_NE(port_of_job("slurm-77.0"), port_of_job("slurm-77.1"));
  for (int i = 0; i < 1000; ++i) {
    const int port = port_of_job(std::to_string(i));
    EXPECT_GE(port, 15000);
    EXPECT_LT(port, 32000);
  }
}

TEST(Start, FindsAddressesAndRefusesUnknownNames) {
  EXPECT_EQ(address_towards({"127.0.0.1", 99}, Deadline::after_ms(0)), "127.0.0.1");
  EXPECT_EQ(resolve("127.0.0.1", Deadline::after_ms(0)), "127.0.0.1");
  test::expect_error<InvalidArgument>("no-such-host.invalid",
                                      [] { resolve("no-such-host.invalid", Deadline::after_ms(0)); });
}

TEST(Start, RankZeroIsOnTheFirstNode) {
  Place place = job_place(1, 4, "");
  place.started_by = "srun";
  place.local_size = 2;
  const auto nodes = [](const std::string& name) -> std::optional<std::string> {
    if (name == "SLURM_STEP_NODELIST") return "n[2-3]";
    return std::nullopt;
  };
  const Endpoint at = rendezvous_of_rank_zero(place, nodes);
  EXPECT_EQ(at.host, "n2");
  EXPECT_EQ(at.port, port_of_job(place.job));
  place.rendezvous = "n9:4711";
  EXPECT_EQ(rendezvous_of_rank_zero(place, nodes).host, "n9");
}

}  // namespace
}  // namespace mx::comm
