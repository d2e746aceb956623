// The conformance suite over MPI: each rank is a process of mpirun. Also that of rendezvous
// (rendezvous_test.cc).
//
// Usage: mpirun -n N comm_mpi_conformance [--ending=K] [options of GoogleTest]
//   Without --ending, the parts of tests that make their group unusable are left out, and rank 0 prints their
//   number for each test: "ending NAME NUMBER". With it, part K of the one test of --gtest_filter is run.
// conformance.py starts all the jobs that it takes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "comm/module.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "tests/comm/conformance.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/comm/rank_processes.h"

namespace mx::comm {
namespace {

Place place_in_mpirun() {
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    MX_CHECK(text != nullptr, InvalidState, "expected a process of mpirun, got one without ", name);
    return std::atoi(text);
  };
  Place place;
  place.started_by = "mpirun";
  place.rank = number("OMPI_COMM_WORLD_RANK");
  place.size = number("OMPI_COMM_WORLD_SIZE");
  return place;
}

std::shared_ptr<Communicator> mpi_rank(int ranks) {
  ModuleRequest request;
  request.place = place_in_mpirun();
  MX_CHECK(ranks == request.place.size, InvalidArgument, "expected a group of ", request.place.size,
           " ranks, as the job has, got one of ", ranks);
  return load_module("mpi").make(request);
}

RankGroup with_other_ranks(std::shared_ptr<Communicator> member, int ranks) {
  RankGroup group(static_cast<size_t>(ranks));
  group[static_cast<size_t>(member->rank())] = std::move(member);
  return group;
}

RankGroup make_mpi(int ranks) { return with_other_ranks(mpi_rank(ranks), ranks); }

// Pauses before some calls, other ones on each rank, so that the ranks come to their calls in ever different
// orders.
class LateCommunicator final : public ForwardingCommunicator {
 public:
  LateCommunicator(std::shared_ptr<Communicator> below, unsigned seed)
      : ForwardingCommunicator(std::move(below)), random_(seed * 1000 + static_cast<unsigned>(rank())) {}
  void start(Request request) override {
    pause();
    ForwardingCommunicator::start(std::move(request));
  }

 private:
  void pause() {
    unsigned us = 0;
    {
      std::lock_guard lock(mutex_);
      if (random_() % 4 == 0) us = static_cast<unsigned>(random_() % 2000);
    }
    if (us > 0) usleep(us);
  }

  std::mutex mutex_;
  std::minstd_rand random_;
};

ConformanceCase mpi_with_delays(unsigned seed) {
  return {.name = "delays" + std::to_string(seed),
          .make =
              [seed](int ranks) {
                return with_other_ranks(std::make_shared<LateCommunicator>(mpi_rank(ranks), seed), ranks);
              },
          .size_scale = 0.1};
}

const ConformanceCase kMpi{.name = "mpi", .make = make_mpi, .adds_megabytes = true};

INSTANTIATE_TEST_SUITE_P(Mpi, Conformance, ::testing::Values(kMpi, mpi_with_delays(1), mpi_with_delays(2)),
                         conformance_name);

// A failure ends the waits of the other processes.
class TellFailures final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) RankProcesses::of_job()->fail();
  }
};

int run(int ending) {
  const Place place = place_in_mpirun();
  RankProcesses processes(place.rank, place.size, ending, [&place](const std::string& value) {
    return load_module("mpi").share_from_first(place, value);
  });
  ::testing::UnitTest::GetInstance()->listeners().Append(new TellFailures);
  int status = RUN_ALL_TESTS();
  if (ending >= 0 && !processes.has_run_ending()) {
    std::fprintf(stderr, "expected one test with at least %d parts that end its group, got none\n",
                 ending + 1);
    status = 1;
  }
  if (place.rank == 0 && ending < 0)
    for (const auto& [name, number] : processes.endings())
      std::printf("ending %s %d\n", name.c_str(), number);
  std::printf("rank %d of %d: %s\n", place.rank, place.size, status == 0 ? "passed" : "FAILED");
  std::fflush(stdout);
  try {
    processes.meet();
  } catch (const Error& e) {
    std::fprintf(stderr, "rank %d: %s\n", place.rank, e.what());
  }
  // After a failure other processes may wait in MPI for ever; leave without its clean-up.
  if (ending >= 0 || status != 0) _exit(status);
  return status;
}

}  // namespace
}  // namespace mx::comm

int main(int argc, char** argv) {
  // The other ranks print failures only.
  GTEST_FLAG_SET(brief, mx::comm::place_in_mpirun().rank != 0);
  ::testing::InitGoogleTest(&argc, argv);
  int ending = -1;
  if (argc > 1 && std::strncmp(argv[1], "--ending=", 9) == 0) ending = std::atoi(argv[1] + 9);
  return mx::comm::run(ending);
}
