// Server: one parameter server, which holds shards of the keys of all stores "dist_sync" and "dist_async" of
// a job. Internal; KVStore::create() runs it in processes with the role of a server.
//
//   kv::Server server({.number = 0, .identity = identity, .workers = 2});
//   rendezvous.put(epoch_key(0, "server/0"), server.address());
//   server.run();   // until all workers have said farewell
//
// It listens at one address, never at a wildcard. Nothing of a connection is looked at before its handshake,
// which has a deadline. A worker that breaks the protocol is disconnected. If a worker's connection ends
// without a farewell, all requests of the other workers are refused with PeerLost, which names it.
//
// Thread-safety: any thread may call stop() and report_lost(); one thread calls run().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/net/handshake.h"

namespace mx::kv {

/// The purpose of connections between workers and servers, in their handshakes.
inline constexpr const char* kServerPurpose = "kv";

struct ServerOptions {
  int number = 0;
  comm::Identity identity;            ///< its rank and purpose are ignored
  std::string address = "127.0.0.1";  ///< numeric; see comm::address_of_interface()
  int workers = 0;                    ///< of the job; 0: the first worker tells their number
  int64_t handshake_timeout_ms = 5000;
  size_t max_handshakes = 256;  ///< at a time; a further one ends the oldest
  /// Called when a worker fails or its connection breaks, before the others are told. May be empty.
  std::function<void(int worker)> noticed_loss = {};
};

class Server {
 public:
  /// Listens at once. Throws InvalidArgument for a wildcard address.
  explicit Server(ServerOptions options);
  ~Server();

  /// "host:port", with the port that was bound.
  const std::string& address() const;
  /// Serves until all workers have said farewell, until a worker was lost and no connection is left, or until
  /// stop(). Returns true if all workers have said farewell.
  bool run();
  /// Ends run(). Safe from any thread and from signal handlers.
  void stop();
  /// Returns whether stop() was called.
  bool stopped() const;
  /// Returns whether stop() has ended run() while a worker was connected that had neither said farewell nor
  /// closed all its stores, and no failure was known. After run().
  bool left_workers() const;
  /// A process is lost, says the rendezvous. `text` names it. `worker`: its number if it is a worker, else
  /// -1.
  void report_lost(const std::string& text, int32_t worker);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs the server of this process (comm::place()): publishes its address in the rendezvous, serves until all
/// workers have said farewell or the process gets SIGTERM, and returns the exit code of the process: 0 in
/// both cases, 1 if a worker was lost. SIGTERM ends the process itself if workers still use the server: it is
/// a loss for them. Throws InvalidState if the place is not that of a server.
int run_server();

}  // namespace mx::kv
