// Groups over shared memory whose ranks are threads.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "comm/shm/shm_communicator.h"

namespace mx::test {

/// Element r is rank r.
inline std::vector<std::shared_ptr<comm::Communicator>> make_shm_threads(int ranks) {
  const comm::ShmGroup memory(ranks);
  std::vector<std::shared_ptr<comm::Communicator>> group(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { group[static_cast<size_t>(rank)] = memory.join(rank); });
  for (std::thread& thread : threads) thread.join();
  return group;
}

}  // namespace mx::test
