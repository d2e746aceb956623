// The conformance suite with ranks that are threads, each with its own mapping of the shared memory.
#include "tests/comm/conformance.h"

#include <thread>

#include "comm/shm/shm_communicator.h"

namespace mx::comm {
namespace {

std::vector<std::shared_ptr<Communicator>> make_shm_group(int ranks) {
  const ShmGroup memory(ranks);
  std::vector<std::shared_ptr<Communicator>> group(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { group[static_cast<size_t>(rank)] = memory.join(rank); });
  for (std::thread& thread : threads) thread.join();
  return group;
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance, ::testing::Values(ConformanceCase{"shm", make_shm_group}),
                         conformance_name);

}  // namespace
}  // namespace mx::comm
