#include "comm/net/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/in_steps.h"
#include "comm/net/bytes.h"
#include "comm/net/resolve.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr int64_t kConnectRetryMs = 20;    // between two attempts to connect
constexpr int64_t kLeastAttemptMs = 1000;  // of an attempt, if other addresses remain
constexpr int64_t kConnectCheckMs = 200;   // between two checks

/// Waits for events; returns whether there are some before the deadline.
bool wait_socket(int fd, short events, Deadline deadline, const std::function<void()>& check = {}) {
  for (;;) {
    const Deadline step = check ? earlier(deadline, Deadline::after_ms(kConnectCheckMs)) : deadline;
    pollfd entry{fd, events, 0};
    const int n = poll(&entry, 1, step.poll_ms());
    if (n > 0) return true;
    if (n < 0)
      MX_CHECK(errno == EINTR || errno == EAGAIN, CommunicationError, "[socket] expected to wait, got ",
               std::strerror(errno));
    if (n == 0 && deadline.passed()) return false;
    if (check) check();
  }
}

Endpoint endpoint_of(const sockaddr_storage& address, socklen_t bytes) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {"unknown", 0};
  return {host, static_cast<uint16_t>(std::strtoul(port, nullptr, 10))};
}

Endpoint local_endpoint(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 ? endpoint_of(address, bytes)
                                                                             : Endpoint{"unknown", 0};
}

Endpoint remote_endpoint(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  return getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0 ? endpoint_of(address, bytes)
                                                                             : Endpoint{"unknown", 0};
}

/// One attempt. Returns the error, or 0.
int connect_once(const addrinfo& address, Deadline deadline, const std::function<void()>& check, Fd& out) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  prepare_socket(socket.get());
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_socket(socket.get(), POLLOUT, deadline, check)) return ETIMEDOUT;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
    if (error != 0) return error;
  }
  // If nobody listens at a port of this host, the system may choose that very port for this side, and the
  // socket is then connected to itself.
  if (local_endpoint(socket.get()) == remote_endpoint(socket.get())) return ECONNREFUSED;
  out = std::move(socket);
  return 0;
}

bool may_pass_later(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ETIMEDOUT:
    case EADDRNOTAVAIL:
    case EAGAIN:
    case EINTR:
      return true;
    default:
      return false;
  }
}

}  // namespace

void prepare_socket(int fd) {
  const int one = 1, idle = 30, interval = 10, probes = 3;
  // Not all of them exist for sockets of the AF_UNIX family; a failure only makes such a socket slower.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
#ifdef TCP_KEEPIDLE
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
#endif
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, fcntl(fd, F_GETFD) | FD_CLOEXEC);
}

std::string peer_of(int fd) {
  const Endpoint endpoint = remote_endpoint(fd);
  return endpoint.port == 0 ? "unknown" : to_string(endpoint);
}

Listener listen_at(const std::string& address, uint16_t port, int backlog) {
  const Endpoint wanted{address, port};
  MX_CHECK(!address.empty() && !is_wildcard(address), InvalidArgument,
           "[listen] expected the address of one interface, got the wildcard address ", in_quotes(address));
  int error = 0;
  const AddressList list = look_up(wanted, SOCK_STREAM, AI_NUMERICHOST | AI_PASSIVE, error);
  MX_CHECK(list, InvalidArgument, "[listen] expected a numeric address, got ", in_quotes(address));
  Fd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  MX_CHECK(socket, CommunicationError, "[listen] expected a socket, got ", std::strerror(errno));
  const int one = 1;
  // Only with a fixed port: a port that the system chooses must belong to nobody else, not even in TIME_WAIT.
  if (port != 0) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  MX_CHECK(bind(socket.get(), list->ai_addr, list->ai_addrlen) == 0 && listen(socket.get(), backlog) == 0,
           CommunicationError, "[listen] expected to listen at ", to_string(wanted), ", got ",
           std::strerror(errno));
  const Endpoint bound = local_endpoint(socket.get());
  return {std::move(socket), {address, bound.port}};
}

bool out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Fd accept_one(const Fd& listener, Deadline deadline) {
  for (;;) {
    Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      prepare_socket(socket.get());
      return socket;
    }
    // A connection that ended before it was accepted is not an error of the listener.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    MX_CHECK(errno == EAGAIN || errno == EWOULDBLOCK, CommunicationError,
             "[accept] expected a connection, got ", std::strerror(errno));
    MX_CHECK(wait_socket(listener.get(), POLLIN, deadline), Timeout, "[accept] expected a connection at ",
             to_string(local_endpoint(listener.get())), ", got none until the deadline");
  }
}

int connect_in_turn(const addrinfo* list, Deadline deadline, const std::function<void()>& check, Fd& out) {
  int64_t remaining = 0;
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) ++remaining;
  const bool several = remaining > 1;
  int error = 0;
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next, --remaining) {
    Deadline limit = deadline;
    if (several) {
      // The last one leaves time for another attempt at the first ones, too: they may only have been early.
      const int64_t share_ms = deadline.left_ms() / std::max<int64_t>(remaining, 2);
      limit = earlier(deadline, Deadline::after_ms(std::max(kLeastAttemptMs, share_ms)));
    }
    error = connect_once(*address, limit, check, out);
    if (error == 0 || !may_pass_later(error)) return error;
  }
  return error;
}

Fd connect_to(const Endpoint& endpoint, Deadline deadline, const std::function<void()>& check) {
  std::string last = "no attempt";
  do {
    int error = 0;
    const AddressList list = look_up(endpoint, SOCK_STREAM, 0, error);
    if (!list) {
      last = gai_strerror(error);
      MX_CHECK(error == EAI_AGAIN || error == EAI_NONAME, CommunicationError,
               "[connect] expected the address of ", in_quotes(endpoint.host), ", got: ", last);
    }
    if (list) {
      Fd socket;
      error = connect_in_turn(list.get(), deadline, check, socket);
      if (error == 0) return socket;
      last = std::strerror(error);
      MX_CHECK(may_pass_later(error), CommunicationError, "[connect] expected a connection to ",
               to_string(endpoint), ", got: ", last);
    }
    if (check) check();
    poll(nullptr, 0, static_cast<int>(std::min(kConnectRetryMs, deadline.left_ms())));
  } while (!deadline.passed());
  throw Timeout(mx::detail::concat("[connect] expected a connection to ", to_string(endpoint),
                                   " until the deadline, got: ", last));
}

void send_all(Stream& stream, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = stream.send(bytes.data(), bytes.size());
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (errno == EPROTO && stream.failure()) std::rethrow_exception(stream.failure());
    MX_CHECK(n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK), PeerLost, "[send] expected to send ",
             bytes.size(), " bytes to ", peer_of(stream.fd()), ", got: ", std::strerror(errno));
    MX_CHECK(wait_socket(stream.fd(), stream.events(POLLOUT), deadline), Timeout, "[send] expected ",
             peer_of(stream.fd()), " to take ", bytes.size(), " bytes until the deadline, got none taken");
  }
}

/// Takes what has come from the front of `bytes`, also if it throws.
static void receive_rest(Stream& stream, std::span<std::byte>& bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = stream.receive(bytes.data(), bytes.size());
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    MX_CHECK(n != 0, PeerLost, "[receive] expected ", bytes.size(), " bytes from ", peer_of(stream.fd()),
             ", got the end of the connection");
    if (errno == EPROTO && stream.failure()) std::rethrow_exception(stream.failure());
    MX_CHECK(errno == EAGAIN || errno == EWOULDBLOCK, PeerLost, "[receive] expected ", bytes.size(),
             " bytes from ", peer_of(stream.fd()), ", got: ", std::strerror(errno));
    MX_CHECK(wait_socket(stream.fd(), stream.events(POLLIN), deadline), Timeout, "[receive] expected ",
             bytes.size(), " bytes from ", peer_of(stream.fd()), " until the deadline, got none");
  }
}

void receive_exactly(Stream& stream, std::span<std::byte> bytes, Deadline deadline) {
  receive_rest(stream, bytes, deadline);
}

RemoteIdentity handshake_on(Stream& stream, Handshake::Side side, const Identity& self, Deadline deadline,
                            const std::string& peer, std::optional<int32_t> expected_rank,
                            const std::function<void()>& check) {
  const Deadline until = earlier(deadline, Deadline::after_ms(kHandshakeTimeoutMs));
  Handshake handshake(side, self, random_nonce(), expected_rank);
  std::array<std::byte, Handshake::kMessageBytes> buffer;
  try {
    stream.secure(side, self);
    Handshake::Actions actions = handshake.start();
    for (;;) {
      // A remote that refuses at once may have closed its side already; its reason is still to be read.
      const bool must_send = !actions.failure;
      try {
        send_all(stream, std::as_bytes(std::span(actions.send)), until);
      } catch (const PeerLost&) {
        if (must_send && handshake.done()) throw;
      }
      if (actions.failure) std::rethrow_exception(actions.failure);
      if (actions.done) return handshake.remote();
      // Part by part, because garbage and other versions are recognised by their first bytes.
      const size_t wanted = std::min<size_t>(handshake.wanted(), buffer.size());
      const size_t part = wanted == Handshake::kMessageBytes ? 8 : wanted;
      std::span<std::byte> rest = std::span(buffer).first(part);
      if (handshake.awaits_accept())
        in_steps(check, deadline, [&](Deadline moment) { receive_rest(stream, rest, moment); });
      else
        receive_rest(stream, rest, until);
      actions = handshake.receive(std::span(buffer).first(part), stream.binding());
    }
  } catch (const Error&) {
    std::rethrow_exception(
        rewrite_current_exception([&](const std::string& text) { return text + " (" + peer + ")"; }));
  }
}

}  // namespace mx::comm
