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

TEST(TcpAcceptor, AConnectionThatItsRankHasGivenUpDoesNotCount) {
  const Deadline deadline = Deadline::after_ms(60000);
  TcpAcceptor acceptor(listen_at("127.0.0.1"), acceptor_identity(0), 1, 2, deadline);
  const auto connect_as = [&](int32_t rank) {
    Stream socket = connect_to(acceptor.at(), deadline);
    handshake_on(socket, Handshake::Side::connector, acceptor_identity(rank), deadline, "rank 0");
    return socket;
  };
  connect_as(1).reset();
  const Stream second = connect_as(2);
  const Stream first = connect_as(1);  // would wait for an answer in vain if the acceptor had ended
  acceptor.wait();
  const std::map<int, Stream> ranks = acceptor.take();
  ASSERT_EQ(ranks.size(), 2u);
  const char sent = 'x';
  char got = 0;
  EXPECT_EQ(::send(first.fd(), &sent, 1, MSG_NOSIGNAL), 1);
  pollfd arrives{ranks.at(1).fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&arrives, 1, 60000), 1);
  EXPECT_EQ(::recv(ranks.at(1).fd(), &got, 1, MSG_DONTWAIT), 1);
  EXPECT_EQ(got, sent);
}

TEST(TcpAcceptor, WhatARankSentBeforeItsEndStillArrives) {
  const Deadline deadline = Deadline::after_ms(60000);
  TcpAcceptor acceptor(listen_at("127.0.0.1"), acceptor_identity(0), 1, 1, deadline);
  Stream socket = connect_to(acceptor.at(), deadline);
  handshake_on(socket, Handshake::Side::connector, acceptor_identity(1), deadline, "rank 0");
  EXPECT_EQ(::send(socket.fd(), "x", 1, MSG_NOSIGNAL), 1);
  socket.reset();
  acceptor.wait();
  EXPECT_EQ(acceptor.take().size(), 1u);
}

}  // namespace
}  // namespace mx::comm
