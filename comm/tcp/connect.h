// Connects the ranks of a group with each other over TCP.
//
// Each rank listens at an address of its own, with a port that the system chooses, and publishes it in the
// rendezvous. It connects to all lower ranks, while a thread, which lives only that long, accepts the higher
// ones. Every connection begins with the handshake of comm/net. A stranger that fails it, or stays silent, is
// dropped; the others do not notice, because the thread serves all handshakes at once.
//
// Thread-safety: any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "comm/rendezvous.h"
#include "comm/tcp/tcp_transport.h"

namespace mx::comm {

struct TcpGroup {
  int rank = 0, size = 1;
  std::string key;                    ///< unique name of the group among the entries of the epoch
  std::string address = "127.0.0.1";  ///< numeric, to listen at
  std::string host;                   ///< name of this host in the errors of others
  std::string machine = {};           ///< see Transport::machine(); empty: the host's name
  Identity self;                      ///< job, secret and epoch; rank and purpose are set here
  /// Called a few times a second while ranks are missing, by two threads. Throws to give up, for example
  /// because a rank is known to be lost.
  std::function<void()> check;
};

/// Connects the group. A collective call. Throws Timeout, which names the ranks that did not come;
/// AuthenticationError or ProtocolError if a rank refuses this one, or is refused; PeerLost.
std::unique_ptr<TcpTransport> connect_tcp(const TcpGroup& group, Rendezvous& rendezvous, Deadline deadline,
                                          TcpOptions options = {});

}  // namespace mx::comm
