// A real server at loopback: bad clients do not disturb good ones, and lost clients are published.
#include "comm/rendezvous/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/net/socket.h"
#include "comm/net/tls.h"
#include "comm/rendezvous/client.h"
#include "comm/rendezvous/protocol.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr int64_t kPatienceMs = 60000;
Deadline patience() { return Deadline::after_ms(kPatienceMs); }

Identity server_identity(int32_t rank = -1, int64_t epoch = 0) {
  return {"digits", "a secret", epoch, rank, kRendezvousPurpose};
}

RendezvousServerOptions server_options() { return {.self = server_identity()}; }

RendezvousClientOptions client_options(const RendezvousServer& server, int32_t rank, int64_t epoch = 0) {
  RendezvousClientOptions options;
  options.address = server.address();
  options.self = server_identity(rank, epoch);
  options.host = "n" + std::to_string(rank);
  options.heartbeat_ms = 50;
  options.dead_after_ms = kPatienceMs;
  return options;
}

std::unique_ptr<RendezvousClient> connect_client(const RendezvousServer& server, int32_t rank,
                                                 int64_t epoch = 0) {
  return std::make_unique<RendezvousClient>(client_options(server, rank, epoch), patience());
}

TEST(RendezvousClient, TriesAgainIfTheServerDoesNotAnswerAHandshakeInTime) {
  const Listener silent = listen_at("127.0.0.1");
  RendezvousClientOptions options;
  options.address = to_string(silent.at);
  options.self = server_identity(0);
  EXPECT_THROW(RendezvousClient(options, Deadline::after_ms(kHandshakeTimeoutMs + 1000)), Timeout);
  // Both attempts wait in the backlog.
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(accept_one(silent.socket, Deadline::after_ms(1000)));
}

/// A connection whose bytes the test chooses.
class RawClient {
 public:
  explicit RawClient(const RendezvousServer& server)
      : socket_(connect_to(parse_endpoint(server.address()), patience())) {}
  RawClient& authenticate(int32_t rank) {
    handshake_on(socket_, Handshake::Side::connector, server_identity(rank), patience(), "server");
    return *this;
  }
  RawClient& join(int32_t rank) {
    authenticate(rank).say(encode({FrameKind::join, 1, 0, "worker", "raw"}));
    EXPECT_EQ(hear().kind, FrameKind::done);
    return *this;
  }
  RawClient& say(const std::string& bytes) {
    try {
      send_all(socket_, std::as_bytes(std::span(bytes)), patience());
    } catch (const PeerLost&) {
      // It was disconnected in the middle of it.
    }
    return *this;
  }
  Frame hear() {
    for (;;) {
      if (auto frame = decoder_.next()) return *frame;
      std::byte byte{};
      receive_exactly(socket_, {&byte, 1}, patience());
      decoder_.receive({&byte, 1});
    }
  }
  /// Waits until the server ends the connection.
  bool is_ended() {
    try {
      for (;;) {
        std::byte byte{};
        receive_exactly(socket_, {&byte, 1}, patience());
      }
    } catch (const PeerLost&) {
      return true;
    } catch (const Timeout&) {
      return false;
    }
  }
  void close() { socket_.reset(); }

 private:
  Stream socket_;
  FrameDecoder decoder_;
};

template <class E, class F>
std::string server_error_text(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error of the expected type";
  return {};
}

TEST(RendezvousServer, PublishesAClientThatWasKilled) {
  const RendezvousServer server(server_options());
  const auto good = connect_client(server, 0);
  RawClient killed(server);
  killed.join(3).say(encode({FrameKind::heartbeat, 0, 17, "", ""}));
  EXPECT_EQ(killed.hear().number, 17);
  killed.close();
  const std::string value = good->get("0/lost/worker3", patience());
  const LostProcess lost = parse_lost("0/lost/worker3", value);
  EXPECT_EQ(lost.rank, 3);
  EXPECT_EQ(lost.host, "raw");
  EXPECT_EQ(lost.step, 17);
}

TEST(RendezvousServer, PublishesAClientThatEndsWithoutFarewell) {
  const RendezvousServer server(server_options());
  const auto good = connect_client(server, 0);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lost;
  const uint64_t id = good->watch(lost_prefix(0), [&](std::string_view key, std::string_view) {
    const std::lock_guard lock(mutex);
    lost.emplace_back(key);
    changed.notify_all();
  });
  connect_client(server, 1)->farewell();
  connect_client(server, -1);
  connect_client(server, 2);
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return !lost.empty(); }));
  EXPECT_EQ(lost, std::vector<std::string>{"0/lost/worker2"});
  lock.unlock();
  good->unwatch(id);
}

TEST(RendezvousServer, PublishesAClientWithoutHeartbeats) {
  RendezvousServerOptions options = server_options();
  options.dead_after_ms = 2000;
  const RendezvousServer server(options);
  const auto agent = connect_client(server, -1);
  RawClient silent(server);
  silent.join(5);
  const LostProcess lost = parse_lost("0/lost/worker5", agent->get("0/lost/worker5", patience()));
  EXPECT_EQ(lost.reason, "no heartbeat for 2000 ms");
  const Frame verdict = silent.hear();
  EXPECT_EQ(verdict.kind, FrameKind::error);
  EXPECT_NE(verdict.value.find("lost"), std::string::npos);
  EXPECT_TRUE(silent.is_ended());
}

TEST(RendezvousServer, HeartbeatsCarryTheStep) {
  const RendezvousServer server(server_options());
  const auto good = connect_client(server, 0);
  auto other = connect_client(server, 1);
  other->set_step(123);
  // A get that ends at its deadline sends a message then, and a heartbeat that is due goes with it. The
  // answer to the next request shows that the server has received both.
  for (int i = 0; i < 3; ++i) EXPECT_THROW(other->get("0/never", Deadline::after_ms(100)), Timeout);
  other.reset();
  EXPECT_EQ(parse_lost("0/lost/worker1", good->get("0/lost/worker1", patience())).step, 123);
}

TEST(RendezvousServer, AProcessThatReportedNoStepIsLostAtNone) {
  const RendezvousServer server(server_options());
  const auto good = connect_client(server, 0);
  connect_client(server, 1).reset();
  const LostProcess lost = parse_lost("0/lost/worker1", good->get("0/lost/worker1", patience()));
  EXPECT_EQ(lost.step, -1);
  EXPECT_EQ(to_string(lost).find("at step"), std::string::npos);
}

TEST(RendezvousServer, BadClientsDoNotDisturbGoodOnes) {
  RendezvousServerOptions options = server_options();
  options.handshake_timeout_ms = 2000;
  options.max_handshakes = 8;
  const RendezvousServer server(options);
  const auto good = connect_client(server, 0), other = connect_client(server, 1);
  std::string waited;
  std::thread waiter([&] { waited = other->get("0/late", patience()); });

  RawClient(server).say("GET / HTTP/1.1\r\n\r\n").is_ended();
  RawClient silent(server), slow(server);
  slow.say("MXHS");
  {
    const Endpoint at = parse_endpoint(server.address());
    const auto refused = [&](Identity self, const char* part) {
      const std::string text = server_error_text<AuthenticationError>([&] {
        Stream stream = connect_to(at, patience());
        handshake_on(stream, Handshake::Side::connector, self, patience(), "server");
      });
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    Identity self = server_identity(2);
    self.secret = "guess";
    refused(self, "secret of job 'digits'");
    self = server_identity(2);
    self.job = "letters";
    refused(self, "expected job 'digits', got job 'letters'");
    refused(server_identity(2, 9), "epoch 9");
  }
  RawClient cut(server);
  cut.join(11).say(encode({FrameKind::put, 2, 0, "0/cut", "value"}).substr(0, 30)).close();
  RawClient oversized(server);
  oversized.join(12).say(std::string("\xff\xff\xff\x7f", 4) + std::string(20, '\2'));
  EXPECT_EQ(oversized.hear().kind, FrameKind::error);
  EXPECT_TRUE(oversized.is_ended());
  RawClient garbage(server);
  garbage.join(13).say(std::string(100000, '\xee'));
  EXPECT_TRUE(garbage.is_ended());
  RawClient impolite(server);
  impolite.authenticate(14).say(encode({FrameKind::put, 1, 0, "0/k", "v"}));
  EXPECT_TRUE(impolite.is_ended());
  // More strangers than there are places for them.
  std::vector<std::unique_ptr<RawClient>> strangers;
  for (int i = 0; i < 50; ++i) strangers.push_back(std::make_unique<RawClient>(server));
  const auto third = connect_client(server, 2);
  for (const auto& stranger : strangers) EXPECT_TRUE(stranger->is_ended());
  EXPECT_TRUE(silent.is_ended());
  EXPECT_TRUE(slow.is_ended());

  good->put("0/late", "value");
  waiter.join();
  EXPECT_EQ(waited, "value");
  // Each of these had a rank and joined, so each is lost.
  for (const char* rank : {"11", "12", "13"}) good->get(std::string("0/lost/worker") + rank, patience());
  EXPECT_FALSE(good->failure() || other->failure() || third->failure());
  const RendezvousServer::Counts counts = server.counts();
  EXPECT_EQ(counts.connections, 3u);
  EXPECT_EQ(counts.handshakes, 0u);
  EXPECT_EQ(counts.broken_protocol, 2u);
  EXPECT_GE(counts.refused, 50u);
}

TEST(RendezvousServer, AClientThatDoesNotReadIsDisconnected) {
  RendezvousServerOptions options = server_options();
  options.max_queued_bytes = 1 << 20;
  const RendezvousServer server(options);
  const auto good = connect_client(server, 0);
  const std::string value(Rendezvous::kLongestValue, 'v');
  good->put("0/large", value);
  RawClient greedy(server);
  greedy.join(7);
  std::string requests;
  for (uint64_t i = 0; i < 1000; ++i) encode({FrameKind::get, 10 + i, 0, "0/large", ""}, requests);
  greedy.say(requests);
  const LostProcess lost = parse_lost("0/lost/worker7", good->get("0/lost/worker7", patience()));
  EXPECT_NE(lost.reason.find("does not read"), std::string::npos) << lost.reason;
  EXPECT_EQ(good->get("0/large", patience()), value);
}

TEST(RendezvousServer, HasRoomForSoManyConnections) {
  RendezvousServerOptions options = server_options();
  options.max_connections = 2;
  const RendezvousServer server(options);
  const auto one = connect_client(server, 0), two = connect_client(server, 1);
  const std::string text = server_error_text<PeerLost>([&] { connect_client(server, 2); });
  EXPECT_NE(text.find("no room"), std::string::npos) << text;
}

TEST(RendezvousServer, AdmitsTheProcessesOfItsEpoch) {
  RendezvousServer server(server_options());
  const auto agent = connect_client(server, -1, kAnyEpoch);
  auto old = connect_client(server, 0, 0);
  server.set_epoch(1);
  EXPECT_THROW(connect_client(server, 1, 0), AuthenticationError);
  const auto fresh = connect_client(server, 0, 1);
  old.reset();  // the end of a process of the epoch before is no loss
  connect_client(server, 1, 1);
  agent->get("1/lost/worker1", patience());
  EXPECT_THROW(agent->get("0/lost/worker0", Deadline::after_ms(0)), Timeout);
}

TEST(RendezvousServer, DoesNotListenAtWildcardsOrTakenPorts) {
  RendezvousServerOptions options = server_options();
  options.address = "0.0.0.0";
  EXPECT_THROW(RendezvousServer{options}, InvalidArgument);
  const RendezvousServer server(server_options());
  options = server_options();
  options.port = parse_endpoint(server.address()).port;
  EXPECT_THROW(RendezvousServer{options}, CommunicationError);
}

TEST(RendezvousServer, WorksOverIpv6) {
  RendezvousServerOptions options = server_options();
  options.address = "::1";
  std::unique_ptr<RendezvousServer> server;
  try {
    server = std::make_unique<RendezvousServer>(options);
  } catch (const CommunicationError& e) {
    GTEST_SKIP() << e.what();
  }
  EXPECT_EQ(server->address().rfind("[::1]:", 0), 0u);
  const auto client = connect_client(*server, 0);
  client->put("0/k", "v");
  EXPECT_EQ(client->get("0/k", patience()), "v");
}

TEST(RendezvousClient, NamesTheRendezvousThatIsLost) {
  auto server = std::make_unique<RendezvousServer>(server_options());
  const std::string address = server->address();
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr broken;
  RendezvousClientOptions options = client_options(*server, 0);
  options.on_broken = [&](std::exception_ptr reason) {
    const std::lock_guard lock(mutex);
    broken = reason;
    changed.notify_all();
  };
  RendezvousClient client(options, patience());
  std::string text;
  std::thread waiter([&] { text = server_error_text<PeerLost>([&] { client.get("0/never", patience()); }); });
  server.reset();
  waiter.join();
  EXPECT_NE(text.find("rendezvous at " + address), std::string::npos) << text;
  EXPECT_THROW(client.put("0/k", "v"), PeerLost);
  EXPECT_THROW(client.watch("0/", [](std::string_view, std::string_view) {}), PeerLost);
  std::unique_lock lock(mutex);
  EXPECT_TRUE(
      changed.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return broken != nullptr; }));
  EXPECT_TRUE(client.failure());
}

std::shared_ptr<const TlsContext> server_tls() {
  return std::make_shared<const TlsContext>(TlsSettings{.keys = TlsKeys::secret});
}

TEST(RendezvousServer, OnlyOneSideWithTlsIsToldWhatToDo) {
  for (const bool server_encrypts : {false, true}) {
    RendezvousServerOptions options = server_options();
    if (server_encrypts) options.self.tls = server_tls();
    const RendezvousServer server(options);
    RendezvousClientOptions client = client_options(server, 0);
    if (!server_encrypts) client.self.tls = server_tls();
    const std::string text =
        server_error_text<AuthenticationError>([&] { RendezvousClient(client, patience()); });
    EXPECT_NE(text.find("the other side refused this one"), std::string::npos) << text;
    EXPECT_NE(text.find("the same --tls options (MX_TLS)"), std::string::npos) << text;
    EXPECT_EQ(server.counts().refused, 1u);
  }
}

TEST(RendezvousServer, StrangersDisturbNoClientWithTls) {
  RendezvousServerOptions options = server_options();
  options.self.tls = server_tls();
  options.handshake_timeout_ms = 3000;
  const RendezvousServer server(options);
  RendezvousClientOptions of_client = client_options(server, 0);
  of_client.self.tls = options.self.tls;
  RendezvousClient client(of_client, patience());
  // One that says nothing, one that begins a handshake and stops, one that sends nonsense in its place, and
  // one that guesses.
  RawClient silent(server), slow(server);
  slow.say(std::string("\x16\x03\x01\x01\x00\x01", 6));
  RawClient(server).say("\x16 and no handshake of TLS").is_ended();
  RendezvousClientOptions guess = client_options(server, 1);
  guess.self.tls = options.self.tls;
  guess.self.secret = "guess";
  server_error_text<AuthenticationError>([&] { RendezvousClient(guess, patience()); });
  EXPECT_TRUE(slow.is_ended());
  EXPECT_TRUE(silent.is_ended());
  EXPECT_GE(server.counts().refused, 4u);
  const std::string value(60'000, 'v');  // several records
  client.put("0/k", value);
  EXPECT_EQ(client.get("0/k", patience()), value);
}

TEST(RendezvousServer, PublishesAClientWithTlsThatEndsWithoutAFarewell) {
  RendezvousServerOptions options = server_options();
  options.self.tls = server_tls();
  const RendezvousServer server(options);
  const auto connect = [&](int32_t rank) {
    RendezvousClientOptions client = client_options(server, rank);
    client.self.tls = options.self.tls;
    return std::make_unique<RendezvousClient>(client, patience());
  };
  const auto good = connect(0);
  auto parted = connect(1), gone = connect(2);
  parted->farewell();
  parted.reset();
  gone.reset();
  parse_lost("0/lost/worker2", good->get("0/lost/worker2", patience()));
  EXPECT_THROW(good->get("0/lost/worker1", Deadline::after_ms(0)), Timeout);
}

TEST(RendezvousClient, NoticesARendezvousThatIsSilent) {
  const Listener listener = listen_at("127.0.0.1");
  std::thread mute([&] {
    Stream socket = accept_one(listener.socket, patience());
    handshake_on(socket, Handshake::Side::acceptor, server_identity(), patience(), "client");
    const std::string done = encode({FrameKind::done, 1, 0, "", ""});
    send_all(socket, std::as_bytes(std::span(done)), patience());
    std::byte byte{};
    try {
      for (;;) receive_exactly(socket, {&byte, 1}, patience());
    } catch (const PeerLost&) {
    }
  });
  RendezvousClientOptions options;
  options.address = to_string(listener.at);
  options.self = server_identity(0);
  options.heartbeat_ms = 50;
  options.dead_after_ms = 2000;
  {
    RendezvousClient client(options, patience());
    const std::string text = server_error_text<PeerLost>([&] { client.get("0/k", patience()); });
    EXPECT_NE(text.find("no answer to heartbeats for 2000 ms"), std::string::npos) << text;
  }
  mute.join();
}

TEST(RendezvousClient, WaitsForAServerThatStartsLater) {
  Listener listener = listen_at("127.0.0.1");
  const uint16_t port = listener.at.port;
  listener.socket.reset();
  std::unique_ptr<RendezvousClient> client;
  RendezvousClientOptions options;
  options.address = to_string(listener.at);
  options.self = server_identity(0);
  std::thread starter([&] { client = std::make_unique<RendezvousClient>(options, patience()); });
  RendezvousServerOptions at = server_options();
  at.port = port;
  std::unique_ptr<RendezvousServer> server;
  for (const Deadline end = patience(); !server && !end.passed();) try {
      server = std::make_unique<RendezvousServer>(at);
    } catch (const CommunicationError&) {
      std::this_thread::yield();
    }
  starter.join();
  EXPECT_FALSE(client->failure());
  client->farewell();
  EXPECT_THROW(client->put("0/k", "v"), InvalidState);
}

TEST(RendezvousClient, ANobodyAtTheAddressIsATimeoutThatNamesIt) {
  Listener listener = listen_at("127.0.0.1");
  listener.socket.reset();
  RendezvousClientOptions options;
  options.address = to_string(listener.at);
  options.self = server_identity(0);
  const std::string text =
      server_error_text<Timeout>([&] { RendezvousClient(options, Deadline::after_ms(50)); });
  EXPECT_NE(text.find(options.address), std::string::npos) << text;
}

}  // namespace
}  // namespace mx::comm
