// Sockets at the loopback interface, the texts of addresses, and files with secrets.
#include "comm/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/net/bytes.h"
#include "comm/net/resolve.h"
#include "comm/net/secret.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

Identity socket_identity(int32_t rank, const std::string& secret = "s") {
  return {"job", secret, 0, rank, "test"};
}
Deadline socket_soon() { return Deadline::after_ms(30000); }

struct SocketPair {
  Stream connector, acceptor;
};
SocketPair socket_pair() {
  const Listener listener = listen_at("127.0.0.1");
  SocketPair pair;
  pair.connector = connect_to(listener.at, socket_soon());
  pair.acceptor = accept_one(listener.socket, socket_soon());
  return pair;
}

template <class E, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error of the expected type";
  return {};
}

TEST(Socket, BytesArriveInOrder) {
  SocketPair pair = socket_pair();
  std::string sent(1 << 20, '\0'), received(sent.size(), '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761u >> 13);
  std::thread sender([&] { send_all(pair.connector, std::as_bytes(std::span(sent)), socket_soon()); });
  receive_exactly(pair.acceptor, std::as_writable_bytes(std::span(received)), socket_soon());
  sender.join();
  EXPECT_EQ(sent, received);
}

TEST(Socket, IsClosedOnExecAndNonBlocking) {
  const Listener listener = listen_at("127.0.0.1");
  const Fd a = connect_to(listener.at, socket_soon()), b = accept_one(listener.socket, socket_soon());
  for (const int fd : {listener.socket.get(), a.get(), b.get()}) {
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(Socket, EveryWaitHasADeadline) {
  SocketPair pair = socket_pair();
  std::byte byte{};
  EXPECT_THROW(receive_exactly(pair.acceptor, {&byte, 1}, Deadline::after_ms(10)), Timeout);
  const std::string much(64 << 20, 'x');
  EXPECT_THROW(send_all(pair.connector, std::as_bytes(std::span(much)), Deadline::after_ms(50)), Timeout);
  const Listener listener = listen_at("127.0.0.1");
  EXPECT_THROW(accept_one(listener.socket, Deadline::after_ms(10)), Timeout);
}

TEST(Socket, AConnectionThatEndsIsALostPeer) {
  SocketPair pair = socket_pair();
  pair.connector.reset();
  std::byte byte{};
  EXPECT_THROW(receive_exactly(pair.acceptor, {&byte, 1}, socket_soon()), PeerLost);
}

TEST(Socket, ConnectingWaitsForAListener) {
  Listener listener = listen_at("127.0.0.1");
  const Endpoint at = listener.at;
  listener.socket.reset();
  const std::string text = error_text<Timeout>([&] { connect_to(at, Deadline::after_ms(50)); });
  EXPECT_NE(text.find(to_string(at)), std::string::npos) << text;
  Fd socket;
  std::thread connector([&] { socket = connect_to(at, socket_soon()); });
  Listener again;
  // The port may be in use for a moment by an attempt to connect.
  for (const Deadline end = socket_soon(); !again.socket && !end.passed();) try {
      again = listen_at("127.0.0.1", at.port);
    } catch (const CommunicationError&) {
      std::this_thread::yield();
    }
  connector.join();
  EXPECT_TRUE(socket);
}

/// A listener that answers no attempt to connect, because its backlog is full.
struct SilentListener {
  SilentListener() : listener(listen_at("127.0.0.1", 0, 0)) {
    try {
      while (waiting.size() < 10) waiting.push_back(connect_to(listener.at, Deadline::after_ms(200)));
    } catch (const Timeout&) {
    }
  }
  Listener listener;
  std::vector<Fd> waiting;
};

TEST(Socket, AnAddressThatDoesNotAnswerLeavesTimeForTheOthers) {
  const SilentListener silent;
  const Listener good = listen_at("127.0.0.1");
  int error = 0;
  const AddressList a = look_up(silent.listener.at, SOCK_STREAM, 0, error);
  const AddressList b = look_up(good.at, SOCK_STREAM, 0, error);
  ASSERT_TRUE(a && b) << gai_strerror(error);
  addrinfo first = *a, second = *b;
  first.ai_next = &second;
  second.ai_next = nullptr;
  Fd socket;
  EXPECT_EQ(connect_in_turn(&first, Deadline::after_ms(3000), {}, socket), 0);
  EXPECT_TRUE(socket);
}

TEST(Socket, ConnectingChecksWhileItWaits) {
  const SilentListener silent;
  int checks = 0;
  const auto check = [&] {
    if (++checks == 2) throw PeerLost("it is lost");
  };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(connect_to(silent.listener.at, socket_soon(), check), PeerLost);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Socket, APortThatIsTakenIsNamed) {
  const Listener listener = listen_at("127.0.0.1");
  const std::string text = error_text<CommunicationError>([&] { listen_at("127.0.0.1", listener.at.port); });
  EXPECT_NE(text.find(to_string(listener.at)), std::string::npos) << text;
}

TEST(Socket, LocalhostIsTheLoopbackAddressWithoutALookup) {
  int error = -1;
  const AddressList found = look_up({"localhost", 7}, SOCK_STREAM, 0, error);
  ASSERT_TRUE(found) << gai_strerror(error);
  ASSERT_EQ(found->ai_family, AF_INET);
  const auto* address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  EXPECT_EQ(ntohl(address->sin_addr.s_addr), INADDR_LOOPBACK);
  EXPECT_EQ(ntohs(address->sin_port), 7);
  // AI_NUMERICHOST forbids lookups: only a name that needs none is accepted.
  EXPECT_TRUE(look_up({"localhost", 7}, SOCK_STREAM, AI_NUMERICHOST, error));
  EXPECT_FALSE(look_up({"another-name", 7}, SOCK_STREAM, AI_NUMERICHOST, error));
  EXPECT_NE(error, 0);
}

TEST(Socket, DoesNotListenAtWildcards) {
  for (const char* address : {"0.0.0.0", "::", "::ffff:0.0.0.0", "0:0:0:0:0:0:0:0", ""})
    EXPECT_THROW(listen_at(address), InvalidArgument) << address;
}

TEST(Socket, HandshakeTellsBothSidesWhoTheOtherIs) {
  SocketPair pair = socket_pair();
  RemoteIdentity remote;
  std::thread acceptor([&] {
    remote = handshake_on(pair.acceptor, Handshake::Side::acceptor, socket_identity(1), socket_soon(), "a");
  });
  const RemoteIdentity other =
      handshake_on(pair.connector, Handshake::Side::connector, socket_identity(0), socket_soon(), "b", 1);
  acceptor.join();
  EXPECT_EQ(remote.rank, 0);
  EXPECT_EQ(other.rank, 1);
}

TEST(Socket, BothSidesReportAWrongSecret) {
  SocketPair pair = socket_pair();
  std::string text;
  std::thread acceptor([&] {
    text = error_text<AuthenticationError>([&] {
      handshake_on(pair.acceptor, Handshake::Side::acceptor, socket_identity(1), socket_soon(), "rank 0");
    });
    pair.acceptor.reset();
  });
  const std::string other = error_text<AuthenticationError>([&] {
    handshake_on(pair.connector, Handshake::Side::connector, socket_identity(0, "x"), socket_soon(),
                 "rank 1");
  });
  acceptor.join();
  EXPECT_NE(text.find("(rank 0)"), std::string::npos) << text;
  EXPECT_NE(other.find("(rank 1)"), std::string::npos) << other;
}

TEST(Socket, ASilentStrangerDoesNotHoldTheHandshake) {
  SocketPair pair = socket_pair();
  EXPECT_THROW(
      handshake_on(pair.acceptor, Handshake::Side::acceptor, socket_identity(1), Deadline::after_ms(20), "x"),
      Timeout);
}

// The acceptor may use the connection as soon as it has the proof, and its thread may be held up before it
// says so.
TEST(Socket, AConnectorThatHasSentItsProofWaitsAndChecks) {
  SocketPair pair = socket_pair();
  Handshake acceptor(Handshake::Side::acceptor, socket_identity(1), random_nonce());
  acceptor.start();
  std::string accept;
  std::thread takes_the_proof([&] {
    std::array<std::byte, Handshake::kMessageBytes> message;
    receive_exactly(pair.acceptor, message, socket_soon());
    const std::string answer = acceptor.receive(message).send;
    send_all(pair.acceptor, std::as_bytes(std::span(answer)), socket_soon());
    receive_exactly(pair.acceptor, message, socket_soon());
    accept = acceptor.receive(message).send;
  });
  const Deadline held_up = Deadline::after_ms(kHandshakeTimeoutMs + 50);
  const auto check = [&] {
    if (!held_up.passed() || !takes_the_proof.joinable()) return;
    takes_the_proof.join();
    send_all(pair.acceptor, std::as_bytes(std::span(accept)), socket_soon());
  };
  EXPECT_NO_THROW(handshake_on(pair.connector, Handshake::Side::connector, socket_identity(0), socket_soon(),
                               "b", 1, check));
  if (takes_the_proof.joinable()) takes_the_proof.join();
}

TEST(Address, IsParsedAndPrinted) {
  for (const char* text : {"127.0.0.1:80", "host.example:65535", "[::1]:1"})
    EXPECT_EQ(to_string(parse_endpoint(text)), text);
  EXPECT_EQ(parse_endpoint("[fe80::1]:7"), (Endpoint{"fe80::1", 7}));
  EXPECT_EQ(parse_endpoint("a:0", true).port, 0);
  for (const char* text :
       {"", "host", "host:", ":80", "host:0", "host:65536", "host:-1", "host:80x", "host: 80", "::1:80",
        "[::1]", "[::1]80", "[::1:80", "[host]:80", "[]:80", "a b:80", "a\n:80", "http://x:80"})
    EXPECT_THROW(parse_endpoint(text), InvalidArgument) << text;
}

TEST(Interface, IsResolvedByNameOrAddress) {
  EXPECT_EQ(address_of_interface(""), "127.0.0.1");
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(address_of_interface("127.0.0.1"), "127.0.0.1");
  for (const char* wildcard : {"0.0.0.0", "::", "*", "::ffff:0.0.0.0"})
    EXPECT_THROW(address_of_interface(wildcard), InvalidArgument) << wildcard;
  EXPECT_THROW(address_of_interface("192.0.2.77"), InvalidArgument);  // reserved for documentation
  const std::string text = error_text<InvalidArgument>([] { address_of_interface("no_such_if0"); });
  EXPECT_NE(text.find("lo"), std::string::npos) << text;
  EXPECT_NE(text.find("'no_such_if0'"), std::string::npos) << text;
  EXPECT_TRUE(is_loopback("127.3.2.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_FALSE(is_loopback("localhost"));
}

class SecretFile : public ::testing::Test {
 protected:
  SecretFile() {
    std::string name = (std::filesystem::temp_directory_path() / "mx_secret_XXXXXX").string();
    const Fd file(mkstemp(name.data()));
    path_ = name;
  }
  ~SecretFile() override { std::filesystem::remove(path_); }
  std::string read(const std::string& content, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::binary) << content;
    chmod(path_.c_str(), mode);
    return read_secret_file(path_);
  }
  std::string path_;
};

TEST_F(SecretFile, HasOneLine) {
  EXPECT_EQ(read("word\n"), "word");
  EXPECT_EQ(read("word"), "word");
  EXPECT_EQ(read("word\r\n"), "word");
  EXPECT_EQ(read(std::string(kLongestSecret, 's') + "\n").size(), kLongestSecret);
  for (const std::string& content :
       {std::string(), std::string("\n"), std::string("a\nb"), std::string("a\n\n"), std::string("a\0b", 3),
        std::string(kLongestSecret + 1, 's')})
    EXPECT_THROW(read(content), InvalidArgument) << content;
}

TEST_F(SecretFile, BelongsToItsOwnerOnly) {
  for (const mode_t mode : {0640, 0604, 0660, 0644, 0610, 0601}) {
    const std::string text = error_text<InvalidArgument>([&] { read("hidden word\n", mode); });
    EXPECT_NE(text.find("chmod 600"), std::string::npos) << text;
    EXPECT_EQ(text.find("hidden"), std::string::npos) << text;
  }
  EXPECT_EQ(read("word", 0400), "word");
  EXPECT_THROW(read_secret_file("/no/such/file"), InvalidArgument);
  EXPECT_THROW(read_secret_file("/tmp"), InvalidArgument);
}

TEST(Secret, OfTheProcessIsReadOnceFromItsDescriptor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "from the pipe\n", 14), 14);
  close(ends[1]);
  setenv("MX_SECRET_FD", std::to_string(ends[0]).c_str(), 1);
  EXPECT_EQ(job_secret(), "from the pipe");
  EXPECT_EQ(fcntl(ends[0], F_GETFD), -1);  // closed
  EXPECT_EQ(job_secret(), "from the pipe");
  unsetenv("MX_SECRET_FD");
}

TEST(Secret, APipeThatStaysOpenIsATimeout) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd from(ends[0]), to(ends[1]);
  ASSERT_EQ(write(to.get(), "word\n", 5), 5);
  const std::string text =
      error_text<Timeout>([&] { read_secret(from.get(), "pipe", Deadline::after_ms(20)); });
  EXPECT_NE(text.find("pipe"), std::string::npos) << text;
  EXPECT_EQ(text.find("word"), std::string::npos) << text;
  EXPECT_THROW(read_secret(-1, "nothing"), Error);
}

TEST(Hex, GivesTheBytesBackAndRefusesOtherTexts) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(to_hex({"\0\x7f\xff", 3}), "007fff");
  EXPECT_EQ(from_hex(to_hex(all)), all);
  EXPECT_EQ(from_hex(""), "");
  for (const char* wrong : {"0", "0g", "AB", "0x", " 0", "012"})
    EXPECT_EQ(from_hex(wrong), std::nullopt) << wrong;
}

TEST(Secret, IsUnpredictable) {
  EXPECT_EQ(random_secret().size(), 64u);
  EXPECT_NE(random_secret(), random_secret());
}

}  // namespace
}  // namespace mx::comm
