#include "comm/hosts/connect.h"

#include <set>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "comm/hosts/machine.h"
#include "comm/shm/bootstrap.h"
#include "comm/shm/rings.h"
#include "engine/base/error.h"
#include "engine/base/log.h"

namespace mx::comm {

namespace {

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::vector<int> ranks_of_machine(const Transport& transport, const std::string& machine) {
  std::vector<int> ranks;
  for (int rank = 0; rank < transport.size(); ++rank)
    if (transport.machine(rank) == machine) ranks.push_back(rank);
  return ranks;
}

bool has_machine_of_several_ranks(const Transport& transport) {
  std::set<std::string> machines;
  for (int rank = 0; rank < transport.size(); ++rank) machines.insert(transport.machine(rank));
  return machines.size() < static_cast<size_t>(transport.size());
}

// Ranks of one machine that cannot even try to share memory, for instance in different containers. The first
// rank of the machine tells.
void tell_of_separate_ranks(const Transport& transport) {
  const std::string own = transport.machine(transport.rank());
  std::vector<int> separate;
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (!is_same_boot(transport.machine(rank), own)) continue;
    if (rank < transport.rank()) return;
    if (transport.machine(rank) != own) separate.push_back(rank);
  }
  if (!separate.empty())
    log(LogLevel::warning, "[world] ranks on ", transport.host(transport.rank()),
        " use TCP with each other: rank ", transport.rank(), " shares no memory with the ranks ",
        list_of(separate), ", which run in other namespaces (containers) or as other users");
}

// Returns null if the ranks cannot share memory.
std::unique_ptr<shm::Rings> join_rings(const TcpGroup& group, const std::string& host,
                                       const std::vector<int>& members, Rendezvous& rendezvous,
                                       Deadline deadline, const TcpOptions& options) {
  int member = 0;
  while (members[static_cast<size_t>(member)] != group.rank) ++member;
  const int size = static_cast<int>(members.size());
  const shm::Joining joining{
      rendezvous,
      epoch_key(group.self.epoch, "hosts/" + group.key + "/" + std::to_string(members[0])),
      deadline,
      group.check,
      options.noticed_timeout,
      members};
  std::unique_ptr<shm::Rings> rings;
  try {
    shm::share_files(
        member, size, joining, [&] { return shm::Rings::create(size); },
        [&](const shm::SharedFiles& files) { rings = std::make_unique<shm::Rings>(files, member, size); });
  } catch (const CommunicationError& error) {
    // Only this type says, to all ranks of the machine, that they cannot share memory. The derived types are
    // losses and strangers.
    if (typeid(error) != typeid(CommunicationError)) throw;
    if (member == 0)
      log(LogLevel::warning, "[world] the ranks ", list_of(members), " on ", host,
          " share no memory, so they use TCP with each other: ", error.what());
    return nullptr;
  }
  return rings;
}

}  // namespace

std::unique_ptr<TcpTransport> connect_hosts(const TcpGroup& group, Rendezvous& rendezvous, Deadline deadline,
                                            TcpOptions options) {
  auto transport = connect_tcp(group, rendezvous, deadline, options);
  tell_of_separate_ranks(*transport);
  // All ranks come to the same answer, so the type of the group is the same on all.
  if (!has_machine_of_several_ranks(*transport)) return transport;
  const std::vector<int> members = ranks_of_machine(*transport, transport->machine(group.rank));
  std::unique_ptr<shm::Rings> rings;
  if (members.size() > 1)
    rings = join_rings(group, transport->host(group.rank), members, rendezvous, deadline, options);
  transport->share_memory(std::move(rings), members);
  return transport;
}

}  // namespace mx::comm
