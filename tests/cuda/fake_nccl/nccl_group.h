// Groups of the communicator over NCCL, on the stand-ins for CUDA and NCCL. Each rank has a device of its
// own.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/nccl/nccl_communicator.h"
#include "comm/rendezvous/local.h"
#include "comm/threads/thread_transport.h"
#include "engine/base/error.h"

namespace mx::comm {

/// The most ranks of a group.
inline constexpr int kMostNcclRanks = 9;
/// How many devices the programs ask the stand-in for. The last one is for a test that loses it.
inline constexpr int kNcclDevices = kMostNcclRanks + 1;

/// Element r is rank r, on device first_device + r.
inline std::vector<std::shared_ptr<Communicator>> make_nccl_group(int ranks, int first_device = 0) {
  const std::shared_ptr<Rendezvous> rendezvous = make_local_rendezvous();
  std::vector<std::shared_ptr<Transport>> messages;
  for (auto& transport : make_thread_transports(ranks)) messages.push_back(std::move(transport));
  std::vector<std::shared_ptr<Communicator>> group(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      ModuleRequest request;
      request.place.rank = r;
      request.place.local_rank = first_device + r;
      request.place.size = request.place.local_size = ranks;
      request.rendezvous = rendezvous.get();
      request.key = "group";
      request.messages = ranks == 1 ? nullptr : messages[static_cast<size_t>(r)];
      group[static_cast<size_t>(r)] = std::make_shared<NcclCommunicator>(request);
    });
  for (std::thread& thread : threads) thread.join();
  return group;
}

}  // namespace mx::comm
