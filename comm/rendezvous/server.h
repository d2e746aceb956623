// The embedded rendezvous: a server that one process of the job runs, usually the first agent of mxrun.
//
//   RendezvousServer server({.self = identity});
//   export_variable("MX_RDZV", server.address());
//
// It listens at one address, never at a wildcard. Nothing of a connection is looked at before its handshake,
// which has a deadline. Clients that break the protocol are disconnected, and others do not notice. A client
// with a rank that sends no heartbeats, or whose connection ends without a farewell, is published as lost:
// see lost.h.
//
// Thread-safety: any thread may call any function. The server has one thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/net/handshake.h"
#include "comm/rendezvous/lost.h"

namespace mx::comm {

struct RendezvousServerOptions {
  /// Its rank and purpose are ignored. With kAnyEpoch, clients of every epoch are admitted.
  Identity self;
  std::string address = "127.0.0.1";  ///< numeric; see address_of_interface()
  uint16_t port = 0;                  ///< 0: one that the system chooses
  int64_t dead_after_ms = 5000;
  int64_t handshake_timeout_ms = 5000;
  int backlog = 1024;
  size_t max_connections = 8192;  ///< authenticated ones; more are refused
  size_t max_handshakes = 1024;   ///< at a time; a further one ends the oldest
  /// Bytes that wait to be sent to one client. A client that does not read is disconnected at this limit.
  size_t max_queued_bytes = 64 << 20;
};

class RendezvousServer {
 public:
  /// Listens at once. Throws InvalidArgument for a wildcard address, CommunicationError if the port is taken.
  explicit RendezvousServer(RendezvousServerOptions options);
  /// Ends all connections.
  ~RendezvousServer();

  /// "host:port", with the port that was bound.
  const std::string& address() const;
  /// Later clients need this epoch. Connections of earlier epochs stay, but the ends of their processes are
  /// no longer published.
  void set_epoch(int64_t epoch);

  /// The step of the last heartbeat of a process that is connected; -1: not known.
  int64_t step_of(int64_t epoch, const ProcessName& process) const;

  /// Numbers for tests and reports.
  struct Counts {
    size_t connections = 0, handshakes = 0;               ///< at present
    uint64_t refused = 0, broken_protocol = 0, lost = 0;  ///< so far
  };
  Counts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mx::comm
