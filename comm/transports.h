// The communicators that world() and new_group() can make, by name. Internal.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/net/handshake.h"
#include "comm/place.h"
#include "comm/rendezvous.h"
#include "comm/transport.h"

namespace mx::comm {

/// What the maker of a communicator needs.
struct GroupRequest {
  Place place;
  std::shared_ptr<Rendezvous> rendezvous;
  std::string key;             ///< unique name of the group among the entries of the epoch, such as "world"
  std::string host;            ///< name of this host
  std::string address;         ///< numeric address to listen at
  Identity self;               ///< job, secret, epoch and rank
  int64_t timeout_ms = 60000;  ///< for making the group, and the default of its calls
  /// Returns why a rank was lost, for its PeerLost, or "". May wait a moment until the cause is known.
  std::function<std::string(int rank)> explain_loss;
  /// Called before the first PeerLost of the group, unless explain_loss() was: the rank is lost.
  std::function<void(int rank)> noticed_loss;
  /// Called before a call throws Timeout: it waited for this rank.
  std::function<void(int rank)> noticed_timeout;
  /// Throws PeerLost if a process of the job is known to be lost. Makers call it while they wait.
  std::function<void()> check;
};

using GroupMaker = std::shared_ptr<Communicator> (*)(const GroupRequest& request);

/// Returns the maker of "tcp", "shm", ... Throws InvalidArgument for an unknown name; the message lists the
/// known ones.
GroupMaker find_transport(const std::string& name);

/// Connects the ranks over TCP. `key` names the connections among the entries of the rendezvous.
std::unique_ptr<Transport> connect_group(const GroupRequest& request, const std::string& key);

// The makers. A new transport adds its function here and a line to the list in transports.cc.
std::shared_ptr<Communicator> make_tcp_group(const GroupRequest& request);
/// Shared memory within a machine, TCP between machines; "tcp" if no machine has several ranks.
std::shared_ptr<Communicator> make_hosts_group(const GroupRequest& request);
/// A group of one rank.
std::shared_ptr<Communicator> make_group_of_one(const std::string& host, int64_t timeout_ms);

}  // namespace mx::comm
