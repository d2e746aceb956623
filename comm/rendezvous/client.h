// A connection to the job's rendezvous (rendezvous/server.h), which also tells it that this process lives.
//
//   RendezvousClient client({.address = "127.0.0.1:4711", .self = identity, .host = "n1"},
//                           Deadline::after_ms(60000));
//   client.put("0/address/3", "10.0.0.3:5555");
//   client.farewell();   // without it, the end of the process is published as a loss
//
// A thread of the client reads, calls the watches and sends a heartbeat every `heartbeat_ms`. A lost
// connection is not made again: it fails all waits and later calls with PeerLost, which names the address.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "comm/rendezvous.h"
#include "comm/rendezvous/lost.h"

namespace mx::comm {

/// The purpose of the connections, in their handshakes.
inline constexpr const char* kRendezvousPurpose = "rendezvous";

struct RendezvousClientOptions {
  std::string address;   ///< "host:port"
  std::string run_by{};  ///< the process that runs the rendezvous, in messages: "rank 0"; may be empty
  /// Its purpose is ignored. A process with a negative rank (an agent, a tool) is never published as lost.
  Identity self;
  std::string host;             ///< name of this host, for the messages of others
  std::string role = "worker";  ///< "worker", "server", ...: lower-case letters
  int64_t heartbeat_ms = 500;
  /// The rendezvous answers heartbeats. A silence of so long counts as a loss of the connection; 0: never.
  int64_t dead_after_ms = 5000;
  /// Called once, on the thread of the client, if the connection is lost.
  std::function<void(std::exception_ptr)> on_broken;
};

class RendezvousClient final : public Rendezvous {
 public:
  /// Connects and authenticates, trying again until the deadline if nobody listens yet. Throws Timeout,
  /// AuthenticationError, ProtocolError or InvalidArgument.
  RendezvousClient(RendezvousClientOptions options, Deadline start);
  /// Ends the connection, without farewell.
  ~RendezvousClient() override;

  void put(const std::string& key, const std::string& value) override;
  void tell(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  uint64_t watch(const std::string& prefix, Changed changed) override;
  void unwatch(uint64_t id) override;

  /// Sets the step that the heartbeats carry.
  void set_step(int64_t step);
  /// Says that this process ends as it should, and waits until the rendezvous knows it (at most a second).
  /// Later calls of put() and get() throw.
  void farewell() noexcept;
  /// Returns why the connection is lost, or null.
  std::exception_ptr failure() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mx::comm
