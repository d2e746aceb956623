#include "comm/tcp/acceptor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <map>
#include <thread>

namespace mx::comm {
namespace {

Identity acceptor_identity(int32_t rank) { return {"job", "a secret", 0, rank, "tcp"}; }

double process_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(TcpAcceptor, WaitsWithoutWorkForADescriptor) {
  TcpAcceptor acceptor(listen_at("127.0.0.1"), acceptor_identity(0), 1, 1, Deadline::after_ms(60000));
  Stream client = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(acceptor.at().port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};  // all below are used; poll() takes no more descriptors than that
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_EQ(::connect(client.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const double start = process_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double used = process_seconds() - start;
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_LT(used, 0.15);

  prepare_socket(client.fd());
  handshake_on(client, Handshake::Side::connector, acceptor_identity(1), Deadline::after_ms(60000), "rank 0");
  acceptor.wait();
  EXPECT_EQ(acceptor.take().size(), 1u);
}

/// In clear text, and with TLS, whose farewell is bytes on the wire but no word of the rank.
class TcpAcceptorEnds : public ::testing::TestWithParam<TlsKeys> {
 protected:
  Identity identity(int32_t rank) const {
    Identity self = acceptor_identity(rank);
    self.secret = "a secret";
    self.tls = tls_;
    return self;
  }
  Stream connect_as(const TcpAcceptor& acceptor, int32_t rank) const {
    Stream stream = connect_to(acceptor.at(), deadline_);
    handshake_on(stream, Handshake::Side::connector, identity(rank), deadline_, "rank 0");
    return stream;
  }

  const Deadline deadline_ = Deadline::after_ms(60000);
  const std::shared_ptr<const TlsContext> tls_ =
      GetParam() == TlsKeys::none ? nullptr
                                  : std::make_shared<const TlsContext>(TlsSettings{.keys = GetParam()});
};

TEST_P(TcpAcceptorEnds, AConnectionThatItsRankHasGivenUpDoesNotCount) {
  TcpAcceptor acceptor(listen_at("127.0.0.1"), identity(0), 1, 2, deadline_);
  connect_as(acceptor, 1).reset();
  const Stream second = connect_as(acceptor, 2);
  Stream first = connect_as(acceptor, 1);  // would wait for an answer in vain if the acceptor had ended
  acceptor.wait();
  std::map<int, Stream> ranks = acceptor.take();
  ASSERT_EQ(ranks.size(), 2u);
  std::byte sent{'x'}, got{};
  send_all(first, {&sent, 1}, deadline_);
  receive_exactly(ranks.at(1), {&got, 1}, deadline_);
  EXPECT_EQ(got, sent);
}

TEST_P(TcpAcceptorEnds, WhatARankSentBeforeItsEndStillArrives) {
  TcpAcceptor acceptor(listen_at("127.0.0.1"), identity(0), 1, 1, deadline_);
  Stream stream = connect_as(acceptor, 1);
  std::byte sent{'x'}, got{};
  send_all(stream, {&sent, 1}, deadline_);
  stream.reset();
  acceptor.wait();
  std::map<int, Stream> ranks = acceptor.take();
  ASSERT_EQ(ranks.size(), 1u);
  receive_exactly(ranks.at(1), {&got, 1}, deadline_);
  EXPECT_EQ(got, sent);
}

INSTANTIATE_TEST_SUITE_P(Keys, TcpAcceptorEnds, ::testing::Values(TlsKeys::none, TlsKeys::secret),
                         [](const auto& keys) { return std::string(to_string(keys.param)); });

}  // namespace
}  // namespace mx::comm
