// TcpTransports of one process whose ranks share memory in part, as if they ran on several hosts.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/shm/rings.h"
#include "tests/comm/tcp/tcp_pairs.h"

namespace mx::test {

/// The hosts of ranks 0, 1, ...: one letter each, such as "aab".
using Hosts = std::string;

/// The ranks of each host, and the memory that they share if they are several.
struct HostMemory {
  std::vector<int> members;
  comm::shm::SharedFiles files;
};

inline std::map<char, HostMemory> host_memories(const Hosts& hosts) {
  std::map<char, HostMemory> memories;
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    memories[hosts[rank]].members.push_back(static_cast<int>(rank));
  for (auto& [host, memory] : memories)
    if (memory.members.size() > 1)
      memory.files = comm::shm::Rings::create(static_cast<int>(memory.members.size()));
  return memories;
}

/// Gives a rank its part of the memory of its host.
inline void share_memory(comm::TcpTransport& transport, const HostMemory& memory) {
  std::unique_ptr<comm::shm::Rings> rings;
  for (size_t member = 0; member < memory.members.size(); ++member)
    if (memory.members.size() > 1 && memory.members[member] == transport.rank())
      rings = std::make_unique<comm::shm::Rings>(memory.files, static_cast<int>(member),
                                                 static_cast<int>(memory.members.size()));
  transport.share_memory(std::move(rings), memory.members);
}

/// Connected ranks with these hosts.
inline std::vector<std::unique_ptr<comm::TcpTransport>> shared_group(const Hosts& hosts,
                                                                     const comm::TcpOptions& options = {}) {
  std::vector<std::unique_ptr<comm::TcpTransport>> group;
  int rank = 0;
  for (auto& peers : tcp_peers(static_cast<int>(hosts.size()))) {
    for (size_t peer = 0; peer < peers.size(); ++peer) peers[peer].host = hosts[peer];
    group.push_back(std::make_unique<comm::TcpTransport>(rank++, std::move(peers), options));
  }
  const std::map<char, HostMemory> memories = host_memories(hosts);
  for (size_t i = 0; i < group.size(); ++i) share_memory(*group[i], memories.at(hosts[i]));
  return group;
}

}  // namespace mx::test
