#include "comm/tcp/connect.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "comm/check_rank.h"
#include "comm/in_steps.h"
#include "comm/net/socket.h"
#include "comm/tcp/acceptor.h"
#include "engine/base/check.h"

namespace mx::comm {

namespace {

// Between two connections to a rank that closes them.
constexpr std::chrono::milliseconds kConnectAgain{20};

struct TcpAddress {
  Endpoint at;
  std::string host, machine;
};

std::string tcp_address_key(const TcpGroup& group, int rank) {
  return epoch_key(group.self.epoch, "tcp/" + group.key + "/" + std::to_string(rank));
}

TcpAddress find_rank(const TcpGroup& group, int rank, Rendezvous& rendezvous, Deadline deadline) {
  const std::string text = in_steps(group.check, deadline, [&](Deadline moment) {
    return rendezvous.get(tcp_address_key(group, rank), moment);
  });
  const size_t cut = text.find('\n');
  const size_t next = cut == std::string::npos ? cut : text.find('\n', cut + 1);
  MX_CHECK(next != std::string::npos, ProtocolError,
           "[tcp] expected an address, a host and a machine of rank ", rank, ", got '", text, "'");
  return {parse_endpoint(text.substr(0, cut)), text.substr(cut + 1, next - cut - 1), text.substr(next + 1)};
}

Stream connect_to_rank(const TcpGroup& group, const Identity& self, int rank, const TcpAddress& to,
                       Deadline deadline) {
  const std::string name = "rank " + std::to_string(rank) + " on " + to.host;
  for (;;) {
    Stream stream = connect_to(to.at, deadline, group.check);
    try {
      handshake_on(stream, Handshake::Side::connector, self, deadline, name, rank, group.check);
      return stream;
    } catch (const PeerLost& error) {
      // The rank may have had too many strangers at once. If it is really gone, the deadline ends this loop,
      // or the rendezvous reports the loss.
      if (deadline.passed()) throw;
      if (group.check) group.check();
      std::this_thread::sleep_for(kConnectAgain);
    } catch (const Timeout&) {
      if (deadline.passed())
        throw Timeout(mx::detail::concat("[tcp] expected ", name, " (", to_string(to.at),
                                         ") to answer the handshake of rank ", group.rank,
                                         " in time, got nothing"));
      // It may be lost without its connection having ended, as when its machine is.
      if (group.check) group.check();
    }
  }
}

}  // namespace

std::unique_ptr<TcpTransport> connect_tcp(const TcpGroup& group, Rendezvous& rendezvous, Deadline deadline,
                                          TcpOptions options) {
  check_rank("tcp", group.rank, group.size);
  Identity self = group.self;
  self.rank = group.rank;
  self.purpose = "tcp " + group.key;
  TcpAcceptor acceptor(listen_at(group.address, 0, std::max(128, group.size)), self, group.rank + 1,
                       group.size - 1, deadline, group.check);
  rendezvous.put(tcp_address_key(group, group.rank),
                 to_string(acceptor.at()) + "\n" + group.host + "\n" + group.machine);

  const auto late = [&](int rank) {
    if (options.noticed_timeout) options.noticed_timeout(rank);
  };
  std::vector<Stream> streams(static_cast<size_t>(group.size));
  std::vector<TcpPeer> peers(static_cast<size_t>(group.size));
  const auto note = [&](int rank, const std::string& host, const std::string& machine) {
    peers[static_cast<size_t>(rank)].host = host;
    peers[static_cast<size_t>(rank)].machine = machine;
  };
  note(group.rank, group.host, group.machine);
  for (int rank = 0; rank < group.rank; ++rank) {
    TcpAddress to;
    try {
      to = find_rank(group, rank, rendezvous, deadline);
    } catch (const Timeout&) {
      late(rank);
      throw Timeout(mx::detail::concat("[tcp] expected ", group.size, " ranks in group '", group.key,
                                       "', got no address of rank ", rank, " in time on rank ", group.rank));
    }
    note(rank, to.host, to.machine);
    try {
      streams[static_cast<size_t>(rank)] = connect_to_rank(group, self, rank, to, deadline);
    } catch (const Timeout&) {
      late(rank);
      throw;
    }
  }
  acceptor.wait();
  std::string missing;
  int first_missing = -1;
  for (auto& [rank, stream] : acceptor.take()) streams[static_cast<size_t>(rank)] = std::move(stream);
  for (int rank = group.rank + 1; rank < group.size; ++rank) {
    if (streams[static_cast<size_t>(rank)]) continue;
    if (first_missing < 0) first_missing = rank;
    missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  if (!missing.empty()) {
    late(first_missing);
    const std::string refusal = acceptor.last_refusal();
    throw Timeout(mx::detail::concat("[tcp] expected ", group.size, " ranks in group '", group.key,
                                     "', got no connection in time on rank ", group.rank, " from ", missing,
                                     refusal.empty() ? "" : "; last refused ", refusal));
  }
  for (int rank = group.rank + 1; rank < group.size; ++rank) {
    const TcpAddress from = find_rank(group, rank, rendezvous, deadline);
    note(rank, from.host, from.machine);
  }
  for (size_t rank = 0; rank < peers.size(); ++rank) peers[rank].stream = std::move(streams[rank]);
  return std::make_unique<TcpTransport>(group.rank, std::move(peers), std::move(options));
}

}  // namespace mx::comm
