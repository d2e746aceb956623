// The conformance suite with ranks that are threads, each with its own mapping of the shared memory.
#include "tests/comm/conformance.h"

#include <thread>

#include "comm/shm/shm_communicator.h"
#include "engine/base/annotations.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

std::vector<std::shared_ptr<Communicator>> shm_group(int ranks, const ShmOptions& options) {
  const ShmGroup memory(ranks, options);
  std::vector<std::shared_ptr<Communicator>> group(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { group[static_cast<size_t>(rank)] = memory.join(rank); });
  for (std::thread& thread : threads) thread.join();
  return group;
}

ConformanceCase shm_case() {
  ConformanceCase c{"shm", [](int ranks) { return shm_group(ranks, {}); }};
  c.adds_megabytes = true;
#ifdef MX_TSAN
  c.most_ranks = 5;  // nine take a minute under ThreadSanitizer on two processors
#endif
  return c;
}

ConformanceCase shm_with_delays(uint64_t seed) {
  ConformanceCase c{"delays" + std::to_string(seed), [seed](int ranks) {
                      ShmOptions options;
                      options.delay_seed = seed;
                      return shm_group(ranks, options);
                    }};
  c.most_ranks = 4;
  return c;
}

// The ranks make their allocations together, so after one that failed they would be out of step.
TEST(ShmCommunicator, AFailedAllocationMakesTheGroupUnusable) {
  const auto group = shm_group(2, {});
  const auto errors =
      run_ranks(group, [](int rank, Communicator& member) { member.allocate(rank == 0 ? 100 : 200); });
  const auto again = run_ranks(group, [](int, Communicator& member) { member.barrier(); });
  const auto more = run_ranks(group, [](int, Communicator& member) { member.allocate(100); });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(is_error<ProtocolError>(errors[rank])) << error_text(errors[rank]);
    EXPECT_EQ(again[rank], errors[rank]) << rank;
    EXPECT_EQ(more[rank], errors[rank]) << rank;
  }
}

TEST(ShmCommunicator, ARankWhoseAllocationFailsLeavesTheGroup) {
  ShmOptions options;
  options.timeout_ms = 300;
  const auto group = shm_group(2, options);
  const auto errors = run_ranks(group, [](int rank, Communicator& member) {
    if (rank == 0) member.allocate(100);
  });
  EXPECT_TRUE(is_error<Timeout>(errors[0])) << error_text(errors[0]);
  const auto later = run_ranks(group, [](int rank, Communicator& member) {
    CallOptions patient;
    patient.timeout_ms = 60000;
    if (rank == 1) member.barrier(patient);
  });
  EXPECT_TRUE(is_error<PeerLost>(later[1])) << error_text(later[1]);
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         ::testing::Values(shm_case(), shm_with_delays(1), shm_with_delays(2)),
                         conformance_name);

}  // namespace
}  // namespace mx::comm
