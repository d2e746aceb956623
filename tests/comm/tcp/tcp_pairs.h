// Connected groups of TcpTransports within one process.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "comm/net/socket.h"
#include "comm/net/tls.h"
#include "comm/tcp/tcp_transport.h"

namespace mx::test {

/// Two ends of a TCP connection over the loopback interface.
inline std::array<int, 2> loopback_connection() {
  const auto check = [](bool fine, const char* what) {
    if (!fine) throw std::runtime_error(what);
  };
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  check(::bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "bind");
  check(::listen(listener, 1) == 0, "listen");
  check(::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) == 0, "getsockname");
  const int one = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(::connect(one, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "connect");
  const int other = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  check(other >= 0, "accept");
  ::close(listener);
  return {one, other};
}

/// Sockets between all pairs of `size` ranks: [rank][peer].
inline std::vector<std::vector<comm::TcpPeer>> tcp_peers(int size) {
  const size_t n = static_cast<size_t>(size);
  std::vector<std::vector<comm::TcpPeer>> all(n);
  for (auto& row : all) row.resize(n);
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b) all[a][b].host = "host" + std::to_string(b);
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < a; ++b) {
      const std::array<int, 2> ends = loopback_connection();
      all[a][b].stream = comm::Fd(ends[0]);
      all[b][a].stream = comm::Fd(ends[1]);
    }
  return all;
}

/// Encrypts the connections of a group: runs all their handshakes.
inline void encrypt(std::vector<std::vector<comm::TcpPeer>>& all, const comm::TlsSettings& settings) {
  comm::Identity self;
  self.secret = "a secret of tests";
  self.tls = std::make_shared<const comm::TlsContext>(settings);
  const comm::Deadline deadline = comm::Deadline::after_ms(60000);
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      for (const auto* end : {&all[a][b], &all[b][a]}) comm::prepare_socket(end->stream.fd());
      std::thread other([&] {
        comm::handshake_on(all[b][a].stream, comm::Handshake::Side::acceptor, self, deadline, "a");
      });
      comm::handshake_on(all[a][b].stream, comm::Handshake::Side::connector, self, deadline, "b");
      other.join();
    }
}

inline std::vector<std::unique_ptr<comm::TcpTransport>> tls_group(int size, comm::TcpOptions options = {}) {
  auto all = tcp_peers(size);
  // Keys change often, so that this happens in the middle of calls.
  encrypt(all, {.keys = comm::TlsKeys::secret, .records_per_key = 7});
  std::vector<std::unique_ptr<comm::TcpTransport>> group;
  int rank = 0;
  for (auto& peers : all)
    group.push_back(std::make_unique<comm::TcpTransport>(rank++, std::move(peers), options));
  return group;
}

inline std::vector<std::unique_ptr<comm::TcpTransport>> tcp_group(int size, comm::TcpOptions options = {}) {
  std::vector<std::unique_ptr<comm::TcpTransport>> group;
  int rank = 0;
  for (auto& peers : tcp_peers(size))
    group.push_back(std::make_unique<comm::TcpTransport>(rank++, std::move(peers), options));
  return group;
}

}  // namespace mx::test
