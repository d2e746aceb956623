// Encrypted connections: who may take part, what goes wrong, and that bytes arrive.
#include "comm/net/tls.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/net/socket.h"
#include "comm/net/stream.h"
#include "engine/base/error.h"
#include "tests/comm/net/certificates.h"
#include "tests/comm/net/relay.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

using test::Authority;

Deadline tls_soon() { return Deadline::after_ms(30000); }

std::shared_ptr<const TlsContext> tls_with_secret(uint64_t records_per_key = 1 << 22) {
  TlsSettings settings;
  settings.keys = TlsKeys::secret;
  settings.records_per_key = records_per_key;
  return std::make_shared<const TlsContext>(settings);
}
std::shared_ptr<const TlsContext> tls_with(const TlsSettings& settings) {
  return std::make_shared<const TlsContext>(settings);
}

Identity tls_identity(int32_t rank, std::shared_ptr<const TlsContext> tls, const std::string& secret = "s") {
  Identity self;
  self.job = "job";
  self.secret = secret;
  self.rank = rank;
  self.purpose = "test";
  self.tls = std::move(tls);
  return self;
}

/// Both ends of a connection after their handshakes.
struct Met {
  Stream connector, acceptor;
  std::exception_ptr connector_error, acceptor_error;

  void expect_good() const {
    for (const auto& error : {connector_error, acceptor_error})
      if (error) std::rethrow_exception(error);
  }
};

template <class E>
std::string tls_error(const std::exception_ptr& error) {
  return test::error_of<E>([&] {
    if (error) std::rethrow_exception(error);
  });
}

/// `at`: where the connector connects, given the acceptor's own address.
Met meet(const Identity& connector, const Identity& acceptor,
         const std::function<Endpoint(const Endpoint&)>& at = {}) {
  Met met;
  const Listener listener = listen_at("127.0.0.1");
  std::thread thread([&] {
    try {
      met.acceptor = accept_one(listener.socket, tls_soon());
      handshake_on(met.acceptor, Handshake::Side::acceptor, acceptor, tls_soon(), "the connector");
    } catch (...) {
      met.acceptor_error = std::current_exception();
      met.acceptor.reset();
    }
  });
  try {
    met.connector = connect_to(at ? at(listener.at) : listener.at, tls_soon());
    handshake_on(met.connector, Handshake::Side::connector, connector, tls_soon(), "the acceptor");
  } catch (...) {
    met.connector_error = std::current_exception();
    met.connector.reset();
  }
  thread.join();
  return met;
}

std::string tls_pattern(size_t bytes, unsigned seed) {
  std::minstd_rand random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

void expect_transfer(Stream& from, Stream& to, const std::string& sent) {
  std::string got(sent.size(), '\0');
  std::thread sender([&] { send_all(from, std::as_bytes(std::span(sent)), tls_soon()); });
  receive_exactly(to, std::as_writable_bytes(std::span(got)), tls_soon());
  sender.join();
  EXPECT_TRUE(got == sent) << sent.size() << " bytes";
}

TEST(Tls, ConnectsWithTheSecretAndWithCertificates) {
  const Authority authority("authority");
  const auto certificate = tls_with(authority.sign("one")), other = tls_with(authority.sign("two"));
  for (const auto& [one, two] :
       {std::pair(tls_with_secret(), tls_with_secret()), std::pair(certificate, other)}) {
    Met met = meet(tls_identity(0, one), tls_identity(1, two));
    met.expect_good();
    EXPECT_TRUE(met.connector.is_encrypted() && met.acceptor.is_encrypted());
    EXPECT_EQ(met.connector.binding().size(), 32u);
    EXPECT_EQ(met.connector.binding(), met.acceptor.binding());
    for (const size_t bytes : {size_t{1}, size_t{16384}, size_t{16385}, size_t{3'000'000}}) {
      expect_transfer(met.connector, met.acceptor, tls_pattern(bytes, 1));
      expect_transfer(met.acceptor, met.connector, tls_pattern(bytes, 2));
    }
  }
}

TEST(Tls, EveryConnectionHasABindingOfItsOwn) {
  const auto tls = tls_with_secret();
  const Met first = meet(tls_identity(0, tls), tls_identity(1, tls));
  const Met second = meet(tls_identity(0, tls), tls_identity(1, tls));
  first.expect_good();
  second.expect_good();
  EXPECT_NE(first.connector.binding(), second.connector.binding());
}

TEST(Tls, AWrongSecretIsRefusedOnBothSides) {
  const auto tls = tls_with_secret();
  const Met met = meet(tls_identity(0, tls, "guess"), tls_identity(1, tls));
  for (const auto& error : {met.connector_error, met.acceptor_error}) {
    const std::string text = tls_error<AuthenticationError>(error);
    EXPECT_TRUE(test::contains(text, "the secrets differ")) << text;
  }
}

TEST(Tls, ASecretIsRequired) {
  const auto tls = tls_with_secret();
  const Met met = meet(tls_identity(0, tls, ""), tls_identity(1, tls, ""));
  for (const auto& error : {met.connector_error, met.acceptor_error})
    EXPECT_TRUE(test::contains(tls_error<InvalidArgument>(error), "expected a secret"));
}

TEST(Tls, AnotherJobAndAnotherEpochAreNamed) {
  const auto tls = tls_with_secret();
  Identity job = tls_identity(0, tls), epoch = tls_identity(0, tls);
  job.job = "another";
  epoch.epoch = 7;
  const Met jobs = meet(job, tls_identity(1, tls));
  EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(jobs.connector_error), "'another'"));
  EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(jobs.acceptor_error), "'another'"));
  const Met epochs = meet(epoch, tls_identity(1, tls));
  EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(epochs.connector_error), "epoch 7"));
  EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(epochs.acceptor_error), "epoch 7"));
  epoch.epoch = kAnyEpoch;
  meet(epoch, tls_identity(1, tls)).expect_good();
}

TEST(Tls, OnlyOneSideWithTlsIsToldWhatToDo) {
  const Authority authority("authority");
  for (const auto& tls : {tls_with_secret(), tls_with(authority.sign("one"))})
    for (const bool connector_encrypts : {false, true}) {
      const Met met = meet(tls_identity(0, connector_encrypts ? tls : nullptr),
                           tls_identity(1, connector_encrypts ? nullptr : tls));
      for (const auto& error : {met.connector_error, met.acceptor_error}) {
        const std::string text = tls_error<AuthenticationError>(error);
        EXPECT_TRUE(test::contains(text, "the same --tls options (MX_TLS)")) << text;
        EXPECT_TRUE(test::contains(
            text, connector_encrypts ? "expected clear text, got TLS" : "expected TLS, got clear text"))
            << text;
      }
    }
}

TEST(Tls, TheSecretAndCertificatesDoNotMix) {
  const Authority authority("authority");
  const auto secret = tls_with_secret(), certificate = tls_with(authority.sign("one"));
  for (const auto& [one, two] : {std::pair(secret, certificate), std::pair(certificate, secret)}) {
    const Met met = meet(tls_identity(0, one), tls_identity(1, two));
    for (const auto& error : {met.connector_error, met.acceptor_error}) {
      const std::string text = tls_error<AuthenticationError>(error);
      EXPECT_TRUE(test::contains(text, "the same --tls options (MX_TLS)")) << text;
    }
  }
}

TEST(Tls, CertificatesOfAnotherAuthorityAreRefused) {
  const Authority mine("authority"), theirs("another");
  const auto good = tls_with(mine.sign("good")), bad = tls_with(theirs.sign("bad"));
  for (const bool connector_is_bad : {false, true}) {
    const Met met =
        meet(tls_identity(0, connector_is_bad ? bad : good), tls_identity(1, connector_is_bad ? good : bad));
    // The connector checks first.
    const std::string text = tls_error<AuthenticationError>(met.connector_error);
    EXPECT_TRUE(test::contains(text, "unable to get local issuer certificate")) << text;
    tls_error<AuthenticationError>(met.acceptor_error);
  }
  // Each side checks the other: one that trusts everybody gets nowhere either.
  TlsSettings careless = theirs.sign("careless");
  careless.authority = mine.sign("x").authority;
  const Met met = meet(tls_identity(0, tls_with(careless)), tls_identity(1, good));
  tls_error<AuthenticationError>(met.connector_error);
  EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(met.acceptor_error), "local issuer"));
}

TEST(Tls, CertificatesThatAreNotValidNowAreRefused) {
  const Authority authority("authority");
  const auto good = tls_with(authority.sign("good"));
  const auto old = tls_with(authority.sign("old", -3, -1)), early = tls_with(authority.sign("early", 1, 3));
  const Met expired = meet(tls_identity(0, old), tls_identity(1, good));
  EXPECT_TRUE(
      test::contains(tls_error<AuthenticationError>(expired.acceptor_error), "certificate has expired"));
  EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(expired.connector_error), "expired"));
  const Met server = meet(tls_identity(0, good), tls_identity(1, old));
  EXPECT_TRUE(
      test::contains(tls_error<AuthenticationError>(server.connector_error), "certificate has expired"));
  tls_error<AuthenticationError>(server.acceptor_error);
  const Met future = meet(tls_identity(0, early), tls_identity(1, good));
  EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(future.acceptor_error), "not yet valid"));
}

TEST(Tls, ACertificateDoesNotReplaceTheSecret) {
  const Authority authority("authority");
  const Met met = meet(tls_identity(0, tls_with(authority.sign("one")), "guess"),
                       tls_identity(1, tls_with(authority.sign("two"))));
  for (const auto& error : {met.connector_error, met.acceptor_error})
    EXPECT_TRUE(test::contains(tls_error<AuthenticationError>(error), "secret"));
}

TEST(Tls, FilesThatAreWrongAreNamed) {
  const Authority authority("authority"), another("another");
  const TlsSettings good = authority.sign("good"), other = authority.sign("other");
  const std::string text = authority.folder() + "/text.pem";
  std::ofstream(text) << "no certificate\n";
  const auto expect = [&](const std::string& part, const std::function<void(TlsSettings&)>& change) {
    TlsSettings settings = good;
    change(settings);
    test::expect_error<InvalidArgument>(part, [&] { tls_with(settings)->check_own_certificate(); });
  };
  const std::string missing = authority.folder() + "/missing";
  expect("/missing', got No such file", [&](TlsSettings& s) { s.certificate = missing; });
  expect("/missing', got No such file", [&](TlsSettings& s) { s.key = missing; });
  expect("/missing', got No such file", [&](TlsSettings& s) { s.authority = missing; });
  expect("expected a regular file", [&](TlsSettings& s) { s.authority = authority.folder(); });
  expect("expected certificates in PEM format", [&](TlsSettings& s) { s.certificate = text; });
  expect("expected certificates in PEM format", [&](TlsSettings& s) { s.authority = text; });
  expect("expected certificates in PEM format", [&](TlsSettings& s) { s.certificate = s.key; });
  expect("got another one in file", [&](TlsSettings& s) { s.key = other.key; });
  expect("unable to get local issuer", [&](TlsSettings& s) { s.authority = another.sign("x").authority; });
  expect("has expired", [&](TlsSettings& s) { s = authority.sign("old", -3, -1); });
  expect("for clients", [&](TlsSettings& s) { s = authority.sign("server", -1, 1, "serverAuth"); });
  expect("for servers", [&](TlsSettings& s) { s = authority.sign("client", -1, 1, "clientAuth"); });
  tls_with(authority.sign("both", -1, 1, "serverAuth,clientAuth"))->check_own_certificate();
  tls_with(good)->check_own_certificate();
  ::chmod(text.c_str(), 0600);
  expect("expected a key in PEM format", [&](TlsSettings& s) { s.key = text; });
  ::chmod(good.key.c_str(), 0644);
  test::expect_error<AuthenticationError>("chmod 600", [&] { tls_with(good); });
}

TEST(Tls, ASlowConnectorDoesNotHoldTheHandshake) {
  const auto tls = tls_with_secret();
  const Listener listener = listen_at("127.0.0.1");
  const Fd slow = connect_to(listener.at, tls_soon());
  const uint8_t begin[] = {0x16, 0x03, 0x01, 0x01, 0x00, 0x01};  // of a first message of TLS, and no more
  for (size_t sent = 0; sent <= sizeof begin; ++sent) {
    Stream stream = accept_one(listener.socket, tls_soon());
    EXPECT_THROW(
        handshake_on(stream, Handshake::Side::acceptor, tls_identity(1, tls), Deadline::after_ms(30), "x"),
        Timeout);
    const Fd next = connect_to(listener.at, tls_soon());
    ASSERT_EQ(::send(next.get(), begin, sent, MSG_NOSIGNAL), static_cast<ssize_t>(sent));
    Stream waiting = accept_one(listener.socket, tls_soon());
    EXPECT_THROW(
        handshake_on(waiting, Handshake::Side::acceptor, tls_identity(1, tls), Deadline::after_ms(30), "x"),
        Timeout);
    if (sent < sizeof begin) static_cast<void>(connect_to(listener.at, tls_soon()).release());
  }
}

TEST(Tls, GarbageIsRefusedAtOnce) {
  const auto tls = tls_with_secret();
  for (const std::string garbage : {"GET / HTTP/1.1\r\n\r\n", "\x16 and no handshake of TLS"}) {
    const Listener listener = listen_at("127.0.0.1");
    Stream stranger = connect_to(listener.at, tls_soon());
    send_all(stranger, std::as_bytes(std::span(garbage)), tls_soon());
    Stream stream = accept_one(listener.socket, tls_soon());
    EXPECT_THROW(handshake_on(stream, Handshake::Side::acceptor, tls_identity(1, tls), tls_soon(), "x"),
                 Error);
  }
}

TEST(Tls, AConnectionCutAnywhereIsAnError) {
  const auto tls = tls_with_secret();
  std::atomic<size_t> cut_at{0};
  const std::string sent = tls_pattern(40'000, 3);
  size_t handshakes = 0, transfers = 0;
  for (size_t at = 1; at < 40'500; at += at < 1200 ? 97 : 5003) {
    cut_at = at;
    std::unique_ptr<test::Relay> relay;
    Met met = meet(tls_identity(0, tls), tls_identity(1, tls), [&](const Endpoint& target) {
      relay = std::make_unique<test::Relay>(
          target, [&](std::string& bytes, size_t before) { return before + bytes.size() < cut_at; });
      return relay->at();
    });
    if (met.acceptor_error || met.connector_error) {
      // The connector may have its own end of the handshake before the cut shows.
      ++handshakes;
      if (met.acceptor_error) tls_error<PeerLost>(met.acceptor_error);
      continue;
    }
    std::thread sender([&] {
      try {
        send_all(met.connector, std::as_bytes(std::span(sent)), tls_soon());
      } catch (const PeerLost&) {
      }
    });
    std::string got(sent.size(), '\0');
    EXPECT_THROW(receive_exactly(met.acceptor, std::as_writable_bytes(std::span(got)), tls_soon()), PeerLost)
        << at;
    sender.join();
    ++transfers;
  }
  EXPECT_GT(handshakes, 0u);
  EXPECT_GT(transfers, 0u);
}

TEST(Tls, AnAlteredByteIsAnError) {
  const auto tls = tls_with_secret();
  std::unique_ptr<test::Relay> relay;
  std::atomic<bool> alter{false};
  Met met = meet(tls_identity(0, tls), tls_identity(1, tls), [&](const Endpoint& target) {
    relay = std::make_unique<test::Relay>(target, [&](std::string& bytes, size_t) {
      if (alter) bytes.back() = static_cast<char>(bytes.back() ^ 1);
      return true;
    });
    return relay->at();
  });
  met.expect_good();
  expect_transfer(met.connector, met.acceptor, "good");
  alter = true;
  send_all(met.connector, std::as_bytes(std::span("four", 4)), tls_soon());
  std::byte got[4];
  const std::string text = tls_error<PeerLost>([&] {
    try {
      receive_exactly(met.acceptor, got, tls_soon());
    } catch (...) {
      return std::current_exception();
    }
    return std::exception_ptr();
  }());
  EXPECT_TRUE(test::contains(text, "[tls]")) << text;
}

TEST(Tls, TheWireDoesNotShowWhatIsSent) {
  const std::string known = "a payload that nobody else may read";
  for (const bool encrypted : {false, true}) {
    const auto tls = encrypted ? tls_with_secret() : nullptr;
    std::unique_ptr<test::Relay> relay;
    Met met = meet(tls_identity(0, tls), tls_identity(1, tls), [&](const Endpoint& target) {
      relay = std::make_unique<test::Relay>(target);
      return relay->at();
    });
    met.expect_good();
    expect_transfer(met.connector, met.acceptor, known);
    expect_transfer(met.acceptor, met.connector, known);
    EXPECT_EQ(test::contains(relay->seen(), known), !encrypted);
    EXPECT_EQ(test::contains(relay->seen(), "MXHS"), !encrypted);
  }
}

/// One thread for each end, which sends and receives at the same time, as the transports do.
void exchange(Stream& stream, const std::string& sent, std::string& got, std::minstd_rand random) {
  size_t out = 0, in = 0;
  const Deadline deadline = tls_soon();
  while ((out < sent.size() || in < got.size()) && !deadline.passed()) {
    bool any = false;
    if (out < sent.size()) {
      // Several small parts, so that records begin and end in any of them.
      iovec parts[5];
      size_t count = 0, offered = out;
      for (; count < 5 && offered < sent.size(); ++count) {
        const size_t part = std::min<size_t>(sent.size() - offered, 9000);
        parts[count] = {const_cast<char*>(sent.data()) + offered, part};
        offered += part;
      }
      const ssize_t n = stream.send(parts, count);
      ASSERT_TRUE(n > 0 || (n < 0 && errno == EAGAIN)) << stream.text_of(errno);
      if (n > 0) out += static_cast<size_t>(n);
      any |= n > 0;
    }
    if (in < got.size()) {
      const size_t first = std::min<size_t>(got.size() - in, 1 + random() % 5000);
      iovec parts[2] = {{got.data() + in, first},
                        {got.data() + in + first, std::min<size_t>(got.size() - in - first, 30000)}};
      const ssize_t n = stream.receive(parts, 2);
      ASSERT_TRUE(n > 0 || (n < 0 && errno == EAGAIN)) << stream.text_of(errno);
      if (n > 0) in += static_cast<size_t>(n);
      any |= n > 0;
    }
    if (any || stream.pending() > 0) continue;
    const int wanted = (out < sent.size() ? POLLOUT : 0) | (in < got.size() ? POLLIN : 0);
    pollfd entry{stream.fd(), stream.events(static_cast<short>(wanted)), 0};
    ::poll(&entry, 1, deadline.poll_ms());
  }
  EXPECT_EQ(out, sent.size());
  EXPECT_EQ(in, got.size());
}

TEST(Tls, BothDirectionsAtOnceWithTinyBuffersAndManyKeys) {
  const Authority authority("authority");
  TlsSettings often = authority.sign("often");
  often.records_per_key = 2;
  for (const auto& tls : {tls_with_secret(), tls_with_secret(2), tls_with(often)}) {
    // Not TCP, which waits for a long time before it fills a window of few bytes.
    int ends[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const int tiny = 1;  // the system takes its least
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &tiny, sizeof tiny);
    Met met;
    met.connector = Fd(ends[0]);
    met.acceptor = Fd(ends[1]);
    std::thread accepting([&] {
      handshake_on(met.acceptor, Handshake::Side::acceptor, tls_identity(1, tls), tls_soon(), "a");
    });
    handshake_on(met.connector, Handshake::Side::connector, tls_identity(0, tls), tls_soon(), "b");
    accepting.join();
    const std::string a = tls_pattern(2'000'000, 5), b = tls_pattern(2'100'000, 6);
    std::string got_a(a.size(), '\0'), got_b(b.size(), '\0');
    std::thread other([&] { exchange(met.acceptor, b, got_a, std::minstd_rand(1)); });
    exchange(met.connector, a, got_b, std::minstd_rand(2));
    other.join();
    EXPECT_TRUE(got_a == a && got_b == b);
  }
}

TEST(Tls, TheEndOfAConnectionIsSaidAndSeen) {
  const auto tls = tls_with_secret();
  Met met = meet(tls_identity(0, tls), tls_identity(1, tls));
  met.expect_good();
  EXPECT_FALSE(met.acceptor.ended());
  send_all(met.connector, std::as_bytes(std::span("x", 1)), tls_soon());
  met.connector.reset();
  pollfd entry{met.acceptor.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 30000), 1);
  EXPECT_FALSE(met.acceptor.ended()) << "a byte is still to be received";
  char byte = 0;
  receive_exactly(met.acceptor, std::as_writable_bytes(std::span(&byte, 1)), tls_soon());
  EXPECT_EQ(byte, 'x');
  EXPECT_THROW(receive_exactly(met.acceptor, std::as_writable_bytes(std::span(&byte, 1)), tls_soon()),
               PeerLost);
  EXPECT_TRUE(met.acceptor.ended());
}

TEST(Tls, SendingToAClosedConnectionRaisesNoSignal) {
  const auto tls = tls_with_secret();
  Met met = meet(tls_identity(0, tls), tls_identity(1, tls));
  met.expect_good();
  met.acceptor.reset();
  const std::string much = tls_pattern(1 << 20, 4);
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) send_all(met.connector, std::as_bytes(std::span(much)), tls_soon());
      },
      PeerLost);
}

TEST(Tls, SendingAfterABrokenSendFailsAgainAndReadingGoesOn) {
  const auto tls = tls_with_secret();
  Met met = meet(tls_identity(0, tls), tls_identity(1, tls));
  met.expect_good();
  ASSERT_EQ(::shutdown(met.connector.fd(), SHUT_WR), 0);
  // Whoever sends to several connections may notice the broken one late, and has other bytes for it then.
  for (const size_t bytes : {size_t{16384}, size_t{1}, size_t{50'000}}) {
    std::string text = tls_pattern(bytes, 3);
    // One part. What lies behind it in memory is not to be read.
    iovec parts[2] = {{text.data(), text.size()}, {nullptr, size_t{1} << 20}};
    EXPECT_EQ(met.connector.send(parts, 1), -1) << bytes;
    EXPECT_EQ(errno, EPIPE) << bytes;
  }
  expect_transfer(met.acceptor, met.connector, tls_pattern(20'000, 4));
}

TEST(Tls, AForkedChildDoesNotTouchTheConnection) {
  const auto tls = tls_with_secret();
  Met met = meet(tls_identity(0, tls), tls_identity(1, tls));
  met.expect_good();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = met.connector.send("child", 5) < 0;
    met.connector.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expect_transfer(met.connector, met.acceptor, "parent");
}

TEST(Tls, TheEnvironmentChoosesTheKeys) {
  const auto with = [](const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    struct Unset {
      ~Unset() {
        for (const char* name : {"MX_TLS", "MX_TLS_CERT", "MX_TLS_KEY", "MX_TLS_CA"}) ::unsetenv(name);
      }
    } unset;
    return tls_settings_of_process();
  };
  EXPECT_EQ(with({}).keys, TlsKeys::none);
  EXPECT_EQ(with({{"MX_TLS", "off"}}).keys, TlsKeys::none);
  EXPECT_EQ(with({{"MX_TLS", "psk"}}).keys, TlsKeys::secret);
  const TlsSettings settings =
      with({{"MX_TLS", "cert"}, {"MX_TLS_CERT", "a"}, {"MX_TLS_KEY", "b"}, {"MX_TLS_CA", "c"}});
  EXPECT_EQ(settings.keys, TlsKeys::certificates);
  EXPECT_EQ(settings.certificate + settings.key + settings.authority, "abc");
  test::expect_error<InvalidArgument>("expected MX_TLS to be", [&] { with({{"MX_TLS", "on"}}); });
  test::expect_error<InvalidArgument>("MX_TLS_KEY", [&] {
    with({{"MX_TLS", "cert"}, {"MX_TLS_CERT", "a"}});
  });
}

}  // namespace
}  // namespace mx::comm
