#include "comm/threads/thread_group.h"

#include <utility>

#include "comm/transport_communicator.h"

namespace mx::comm {

std::vector<std::shared_ptr<Communicator>> make_thread_group(int ranks, int64_t timeout_ms,
                                                             const ThreadTransportOptions& options,
                                                             std::optional<Algorithm> algorithm) {
  std::vector<std::shared_ptr<Communicator>> group;
  for (auto& transport : make_thread_transports(ranks, options)) {
    auto member = std::make_shared<TransportCommunicator>(std::move(transport), timeout_ms);
    member->set_algorithm(algorithm);
    group.push_back(std::move(member));
  }
  return group;
}

}  // namespace mx::comm
