#include "comm/tcp/connect.h"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/net/socket.h"
#include "comm/net/tls.h"
#include "comm/rendezvous/local.h"
#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

TcpGroup tcp_group_of(int rank, int size, const std::string& secret = "a secret") {
  TcpGroup group;
  group.rank = rank;
  group.size = size;
  group.key = "world";
  group.host = "n" + std::to_string(rank);
  group.self.job = "job";
  group.self.secret = secret;
  group.self.epoch = 3;
  return group;
}

struct Outcome {
  std::unique_ptr<TcpTransport> transport;
  std::exception_ptr error;
};

/// Connects the ranks of `groups`, each on a thread of its own.
std::vector<Outcome> connect_all(const std::vector<TcpGroup>& groups, Rendezvous& rendezvous,
                                 int64_t timeout_ms = 60000) {
  std::vector<Outcome> outcomes(groups.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        outcomes[i].transport = connect_tcp(groups[i], rendezvous, Deadline::after_ms(timeout_ms));
      } catch (...) {
        outcomes[i].error = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

template <class E>
std::string text_of(const std::exception_ptr& error) {
  return test::error_of<E>([&] {
    if (error) std::rethrow_exception(error);
  });
}

/// Every rank sends its number to every other one.
void expect_connected(std::vector<Outcome>& outcomes) {
  const int size = static_cast<int>(outcomes.size());
  std::vector<std::thread> threads;
  for (Outcome& outcome : outcomes)
    if (outcome.error) std::rethrow_exception(outcome.error);
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      TcpTransport& self = *outcomes[static_cast<size_t>(rank)].transport;
      std::vector<int> got(static_cast<size_t>(size), rank);
      for (int peer = 0; peer < size; ++peer) {
        EXPECT_EQ(self.host(peer), "n" + std::to_string(peer));
        if (peer == rank) continue;
        self.post_send(peer, &rank, sizeof rank);
        self.post_receive(peer, &got[static_cast<size_t>(peer)], sizeof(int));
      }
      self.finish(Deadline::after_ms(60000));
      for (int peer = 0; peer < size; ++peer) EXPECT_EQ(got[static_cast<size_t>(peer)], peer);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpConnect, ConnectsAllPairs) {
  for (const int size : {1, 2, 5}) {
    const auto rendezvous = make_local_rendezvous();
    std::vector<TcpGroup> groups;
    for (int rank = 0; rank < size; ++rank) groups.push_back(tcp_group_of(rank, size));
    auto outcomes = connect_all(groups, *rendezvous);
    expect_connected(outcomes);
  }
}

std::shared_ptr<const TlsContext> tls_of_tests() {
  return std::make_shared<const TlsContext>(TlsSettings{.keys = TlsKeys::secret});
}

TEST(TcpConnect, ConnectsAllPairsWithTls) {
  for (const int size : {2, 5}) {
    const auto rendezvous = make_local_rendezvous();
    std::vector<TcpGroup> groups;
    for (int rank = 0; rank < size; ++rank) {
      groups.push_back(tcp_group_of(rank, size));
      groups.back().self.tls = tls_of_tests();
    }
    auto outcomes = connect_all(groups, *rendezvous);
    expect_connected(outcomes);
  }
}

TEST(TcpConnect, ARankInClearTextIsToldWhatToDo) {
  for (const int encrypted : {0, 1}) {
    const auto rendezvous = make_local_rendezvous();
    std::vector<TcpGroup> groups{tcp_group_of(0, 2), tcp_group_of(1, 2)};
    groups[static_cast<size_t>(encrypted)].self.tls = tls_of_tests();
    const auto outcomes = connect_all(groups, *rendezvous, 2000);
    const std::string refused = text_of<AuthenticationError>(outcomes[1].error);
    EXPECT_TRUE(test::contains(refused, "the same --tls options (MX_TLS)")) << refused;
    // The other rank goes on waiting, as for any stranger.
    const std::string waited = text_of<Timeout>(outcomes[0].error);
    EXPECT_TRUE(test::contains(waited, "the same --tls options (MX_TLS)")) << waited;
  }
}

TEST(TcpConnect, NamesTheRanksThatDidNotCome) {
  const auto rendezvous = make_local_rendezvous();
  // Ranks 1 and 3 of 4 are missing.
  const auto outcomes = connect_all({tcp_group_of(0, 4), tcp_group_of(2, 4)}, *rendezvous, 3000);
  const std::string first = text_of<Timeout>(outcomes[0].error);
  EXPECT_TRUE(test::contains(first, "on rank 0 from rank 1, rank 3")) << first;
  const std::string second = text_of<Timeout>(outcomes[1].error);
  EXPECT_TRUE(test::contains(second, "no address of rank 1")) << second;
}

TEST(TcpConnect, RefusesARankWithAnotherSecret) {
  const auto rendezvous = make_local_rendezvous();
  const auto outcomes =
      connect_all({tcp_group_of(0, 2), tcp_group_of(1, 2, "another secret")}, *rendezvous, 3000);
  text_of<AuthenticationError>(outcomes[1].error);
  // The other rank cannot know whether it was a stranger, so it goes on waiting.
  const std::string message = text_of<Timeout>(outcomes[0].error);
  EXPECT_TRUE(test::contains(message, "last refused connection from 127.0.0.1")) << message;
}

TEST(TcpConnect, StrangersDisturbNobody) {
  const auto rendezvous = make_local_rendezvous();
  std::vector<Outcome> outcomes(2);
  const auto connect = [&](int rank) {
    return std::thread([&, rank] {
      outcomes[static_cast<size_t>(rank)].transport =
          connect_tcp(tcp_group_of(rank, 2), *rendezvous, Deadline::after_ms(60000));
    });
  };
  std::thread first = connect(0);
  const std::string text = rendezvous->get("3/tcp/world/0", Deadline::after_ms(60000));
  const Endpoint at = parse_endpoint(text.substr(0, text.find('\n')));
  const Deadline deadline = Deadline::after_ms(60000);
  // Silent ones, one that sends garbage, one that leaves, and one with a rank that does not exist.
  std::vector<Stream> strangers;
  for (int i = 0; i < 5; ++i) strangers.emplace_back(connect_to(at, deadline));
  const std::string garbage(300, 'x');
  send_all(strangers[0], std::as_bytes(std::span(garbage)), deadline);
  strangers[1].reset();
  Identity odd = tcp_group_of(0, 2).self;
  odd.rank = 7;
  odd.purpose = "tcp world";
  handshake_on(strangers[2], Handshake::Side::connector, odd, deadline, "rank 0");
  std::thread second = connect(1);
  first.join();
  second.join();
  expect_connected(outcomes);
}

TEST(TcpConnect, GivesUpIfTheCheckThrows) {
  for (const int rank : {0, 1}) {
    const auto rendezvous = make_local_rendezvous();
    TcpGroup group = tcp_group_of(rank, 2);
    group.check = [] { throw PeerLost("the other rank is lost"); };
    test::expect_error<PeerLost>("the other rank is lost",
                                 [&] { connect_tcp(group, *rendezvous, Deadline::after_ms(60000)); });
  }
}

TEST(TcpConnect, RefusesToListenAtAWildcardAddress) {
  const auto rendezvous = make_local_rendezvous();
  TcpGroup group = tcp_group_of(0, 2);
  group.address = "0.0.0.0";
  test::expect_error<InvalidArgument>("0.0.0.0",
                                      [&] { connect_tcp(group, *rendezvous, Deadline::after_ms(1000)); });
}

TEST(ConnectTcp, DoesNotHammerAPortThatClosesEveryConnection) {
  // The address of a rank that has ended may belong to another program by now.
  const auto rendezvous = make_local_rendezvous();
  Listener other = listen_at("127.0.0.1", 0);
  rendezvous->put(epoch_key(3, "tcp/world/0"), to_string(other.at) + "\nn0\n");
  std::atomic<bool> over{false};
  int connections = 0;
  std::thread program([&] {
    while (!over) {
      try {
        accept_one(other.socket, Deadline::after_ms(20));
        ++connections;
      } catch (const Timeout&) {
      }
    }
  });
  TcpGroup group = tcp_group_of(1, 2);
  std::atomic<int> checks{0};
  group.check = [&] { ++checks; };
  EXPECT_THROW(connect_tcp(group, *rendezvous, Deadline::after_ms(1000)), Error);  // late or lost
  over = true;
  program.join();
  EXPECT_GE(connections, 1);
  EXPECT_LE(connections, 100);
  EXPECT_GE(checks.load(), 1);
}

}  // namespace
}  // namespace mx::comm
