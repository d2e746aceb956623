// The conformance suite with ranks that are threads, each with its own mapping of the shared memory.
#include "tests/comm/conformance.h"

#include <thread>

#include "comm/shm/shm_communicator.h"
#include "engine/base/annotations.h"

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

INSTANTIATE_TEST_SUITE_P(Shm, Conformance,
                         ::testing::Values(shm_case(), shm_with_delays(1), shm_with_delays(2)),
                         conformance_name);

}  // namespace
}  // namespace mx::comm
