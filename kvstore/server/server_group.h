// ServerGroup: the connections of a worker to all servers of its job. All its stores with servers share them.
// Internal.
//
//   kv::ServerGroup group(options);
//   group.start(0, {.header = {.kind = Kind::pull, .key = 3, .sequence = 7}, .into = buffer, .into_bytes =
//   4096,
//                   .done = [](Bytes, std::exception_ptr error) { ... }});
//
// A thread of the group sends requests, those of the highest priority first, and receives answers straight
// into their buffers. Elements are not copied.
//
// Failures. A connection that breaks, a loss that the rendezvous reports, or a request that passes its
// deadline fails all requests, present and later, with the same error: PeerLost or Timeout, which names the
// server, its host and what was asked for. After the loss of a worker, requests on their way get what the
// servers answer within half a second; the others get the loss. The end of a worker that has closed all its
// stores is no loss: the servers refuse what still waits for it. A refusal fails its request only. Before a
// call gets an error that another process has caused, the group tells the rendezvous which one
// (comm::report_consequence()).
//
// A forked child has no part in the job: its copy of the group tells nobody anything, and calls fail.
//
// Thread-safety: any thread may call any function. `done` runs on the thread of the group, or within start();
// it must not block, may call start(), and may destroy the group.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "comm/rendezvous.h"
#include "comm/rendezvous/lost.h"
#include "kvstore/server/wire.h"

namespace mx::kv {

struct ServerGroupOptions {
  comm::Identity identity;  ///< of this worker; its purpose is ignored
  uint64_t incarnation = 0;
  int workers = 1;
  std::vector<std::string> servers;  ///< "host:port", or "host:port name of the host"
  int64_t timeout_ms = 60000;
  /// Reports lost processes; may be null.
  std::shared_ptr<comm::Rendezvous> rendezvous;
  /// Called now and then while the group connects. What it throws ends that. May be empty.
  std::function<void()> check = {};
  /// Names the process because of which a lost one has failed, as comm::cause_of_loss() does. May be empty.
  std::function<std::string(const comm::LostProcess&)> cause_of_loss = {};
};

struct Call {
  Header header;  ///< without worker, incarnation and bytes
  Bytes body;     ///< stays unchanged until `done`
  int priority = 0;
  int64_t timeout_ms = 0;  ///< 0: that of the group
  std::string what;        ///< names the call in errors: "pull of 'fc1.weight'"
  void* into = nullptr;    ///< where the answer's body belongs, which must then have `into_bytes` bytes
  size_t into_bytes = 0;
  std::function<void(Bytes answer, std::exception_ptr error)> done;
};

class ServerGroup {
 public:
  /// Connects to all servers. Throws Timeout, which names the server, PeerLost or AuthenticationError.
  explicit ServerGroup(ServerGroupOptions options);
  ~ServerGroup();  // calls leave()
  /// Sends a farewell to all servers, so that they know that this worker ends as it should. Requests that are
  /// not complete, and later ones, fail.
  void leave() noexcept;

  int servers() const;
  const ServerGroupOptions& options() const;
  /// Returns the number of a new store. All workers must create their stores in the same order.
  uint16_t new_store();
  /// All servers know that this worker uses one more store, or one less. After the last one, the group tells
  /// the rendezvous, so that the end of this process is no loss for the stores of other workers. If
  /// it opens a store again, only the servers report its end.
  void store_opened();
  void store_closed();
  void start(int server, Call call);
  /// Fails all requests, present and later. The first reason counts.
  void fail(std::exception_ptr reason);
  std::exception_ptr failure() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread is an owner, too
};

/// Returns a function to be called `calls` times, with errors or null pointers. The last call calls `then`
/// with the first error. Calls `then` at once for 0 calls.
std::function<void(std::exception_ptr)> after_all(size_t calls, std::function<void(std::exception_ptr)> then);

}  // namespace mx::kv
