// Sockets with deadlines, for the simple paths: connecting, accepting, the handshake.
//
// All sockets are non-blocking and closed on exec, and have TCP_NODELAY and keep-alive. Functions wait with
// poll() until their deadline and then throw Timeout. They throw PeerLost if the connection ends, and
// CommunicationError for other errors of the system.
//
// Thread-safety: any thread; one thread at a time sends on a socket, and one receives.
#pragma once

#include <netdb.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "comm/deadline.h"
#include "comm/net/fd.h"
#include "comm/net/handshake.h"
#include "comm/net/interface.h"
#include "comm/net/stream.h"

namespace mx::comm {

struct Listener {
  Fd socket;
  Endpoint at;  ///< the address, and the port that was bound
};

/// The time limit of a handshake, so that a silent stranger does not hold a connection.
inline constexpr int64_t kHandshakeTimeoutMs = 5000;

/// Listens at a numeric address. Port 0: one that the system chooses. Throws InvalidArgument for a wildcard
/// address, CommunicationError naming the address if the port is taken.
Listener listen_at(const std::string& address, uint16_t port = 0, int backlog = 128);

/// How long to wait before the next accept if out_of_descriptors().
inline constexpr int64_t kAcceptAgainMs = 20;
/// Returns whether accept() has failed because the process or the system has no descriptor or memory left.
/// The connection then stays in the backlog, so poll() reports it at once again.
bool out_of_descriptors(int error);

/// Accepts one connection.
Fd accept_one(const Fd& listener, Deadline deadline);

/// Connects. Nobody listens yet, or the host is not reachable: tries again until the deadline. Meanwhile it
/// calls `check` at least five times a second; what that throws ends the wait.
Fd connect_to(const Endpoint& endpoint, Deadline deadline, const std::function<void()>& check = {});
/// Tries every address of a list once, in turn, and sets `out` to the first connection. Of several addresses,
/// none gets all the time, because packets to it may be dropped without an answer. Returns 0, or the error of
/// the last attempt. Internal to connect_to(), for tests.
int connect_in_turn(const addrinfo* list, Deadline deadline, const std::function<void()>& check, Fd& out);

void send_all(Stream& stream, std::span<const std::byte> bytes, Deadline deadline);
void receive_exactly(Stream& stream, std::span<std::byte> bytes, Deadline deadline);

/// Encrypts the connection if `self` has a TlsContext, and runs the handshake, within the deadline and
/// kHandshakeTimeoutMs. `peer` names the other side in messages. Throws its failure, AuthenticationError if
/// TLS fails, PeerLost if the connection ends, or Timeout.
///
/// A connector that has sent its proof has the whole deadline: the acceptor may use the connection already,
/// and would take its end for the loss of this process. In that time it calls `check` now and then; what that
/// throws ends the wait.
RemoteIdentity handshake_on(Stream& stream, Handshake::Side side, const Identity& self, Deadline deadline,
                            const std::string& peer, std::optional<int32_t> expected_rank = std::nullopt,
                            const std::function<void()>& check = {});

/// Sets TCP_NODELAY, keep-alive, non-blocking and close-on-exec.
void prepare_socket(int fd);
/// Returns the address of the other side, or "unknown".
std::string peer_of(int fd);

}  // namespace mx::comm
