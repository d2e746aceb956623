// The server of the rendezvous as a state machine: no socket, clock or thread. A connection, a frame and the
// time go in; frames to send and connections to close come out. server.h drives it. Internal.
//
//   RendezvousMachine machine({.dead_after_ms = 5000});
//   machine.connect(1, {.epoch = 0, .rank = 3}, now_ms);
//   machine.receive(1, {.kind = FrameKind::join, .key = "worker", .value = "n1"}, now_ms);
//   for (auto& [to, frame] : machine.take().send) ...
//
// Liveness. A client that joined with a rank must send frames, usually heartbeats. After a silence of
// `dead_after_ms`, or when its connection ends without a farewell, the machine publishes it once, under
// lost_key(), with the step of its last heartbeat, and closes the connection: the process may have missed
// that others go on without it. A farewell publishes that the client has ended, under ended_key().
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/net/handshake.h"
#include "comm/rendezvous/lost.h"
#include "comm/rendezvous/protocol.h"
#include "comm/rendezvous/table.h"

namespace mx::comm {

class RendezvousMachine {
 public:
  using Connection = uint64_t;

  struct Options {
    int64_t dead_after_ms = 5000;
    size_t max_table_bytes = size_t{256} << 20;  ///< of all keys and values
    size_t max_requests = 4096;                  ///< gets and watches of one connection that are open
  };
  struct Actions {
    std::vector<std::pair<Connection, Frame>> send;  ///< in this order
    std::vector<Connection> close;                   ///< after what is to be sent
  };

  explicit RendezvousMachine(Options options) : options_(options) {}

  /// A client passed the handshake.
  void connect(Connection id, RemoteIdentity remote, int64_t now_ms);
  /// Frames of connections that the machine has closed are ignored.
  void receive(Connection id, Frame frame, int64_t now_ms);
  /// The connection ended or broke its protocol. Publishes its client as lost unless it said farewell.
  void disconnect(Connection id, const std::string& reason);
  /// Publishes the clients that have been silent for too long.
  void tick(int64_t now_ms);
  /// Silence of the last `ms` does not count, because the server itself did not listen.
  void excuse(int64_t ms, int64_t now_ms);
  /// When tick() has something to do, if no frames arrive; nothing without clients that have a rank.
  std::optional<int64_t> next_tick_ms() const;
  /// Losses of other epochs are no longer published.
  void set_epoch(int64_t epoch) { epoch_ = epoch; }

  /// Returns what is to be done since the last call.
  Actions take() { return std::exchange(actions_, {}); }

  /// The step of the last heartbeat of a client; -1: not known.
  int64_t step_of(int64_t epoch, const ProcessName& process) const;

  size_t clients() const { return clients_.size(); }
  uint64_t lost() const { return lost_; }

 private:
  struct Client {
    RemoteIdentity remote;
    bool joined = false, farewell = false;
    std::string role, host;
    int64_t heard_ms = 0, step = -1;
    std::map<uint64_t, std::string> gets, watches;  // request -> key or prefix
  };

  void put(const std::string& key, const std::string& value);
  void send_to_watches(const std::string& key, const std::string& value);
  void answer_error(Connection id, uint64_t request, ErrorCode code, std::string message);
  void answer_empty_key(Connection id, uint64_t request);
  void break_off(Connection id, ErrorCode code, std::string message);
  void join(Connection id, Client& client, const Frame& frame);
  void open_get(Connection id, Client& client, Frame& frame);
  void open_watch(Connection id, Client& client, Frame& frame);
  void write(Connection id, Frame& frame);
  void tell(Connection id, const Frame& frame);
  /// Publishes the loss of a client that is already removed from clients_.
  void publish_loss(const Client& client, const std::string& reason);
  /// Publishes that a client ends as it should (see departures.h).
  void publish_end(const Client& client);
  void send(Connection to, FrameKind kind, uint64_t request, std::string key = {}, std::string value = {},
            int64_t number = 0);

  const Options options_;
  std::map<Connection, Client> clients_;
  Table table_;
  std::optional<int64_t> epoch_;
  uint64_t lost_ = 0;
  Actions actions_;
};

}  // namespace mx::comm
