#include "comm/tcp/tcp_transport.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "tests/comm/hosts/shared_pairs.h"
#include "tests/comm/repeated.h"
#include "tests/comm/tcp/tcp_pairs.h"
#include "tests/support/errors.h"
#include "tests/support/forking.h"

namespace mx::comm {
namespace {

using test::contains;

Deadline tcp_soon() { return Deadline::after_ms(60000); }

std::vector<uint8_t> tcp_pattern(size_t bytes, size_t seed) {
  std::vector<uint8_t> data(std::min<size_t>(bytes, 65536));
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7 + (i >> 8) + seed * 31);
  return test::repeated(std::move(data), bytes);
}

/// Runs f(rank) on a thread per rank.
void on_ranks(int size, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(f, rank);
  for (std::thread& thread : threads) thread.join();
}

/// What carries the messages of a group: sockets, shared memory, or shared memory between the ranks of two
/// hosts that alternate.
enum class Links { sockets, rings, both };

test::Hosts hosts_of(Links links, int size) {
  test::Hosts hosts(static_cast<size_t>(size), 'a');
  for (size_t rank = 1; links == Links::both && rank < hosts.size(); rank += 2) hosts[rank] = 'b';
  return hosts;
}

class TransportOver : public ::testing::TestWithParam<Links> {
 protected:
  static std::vector<std::unique_ptr<TcpTransport>> tcp_group(int size, const TcpOptions& options = {}) {
    auto group = test::tcp_group(size, options);
    if (GetParam() == Links::sockets) return group;
    const test::Hosts hosts = hosts_of(GetParam(), size);
    const std::map<char, test::HostMemory> memories = test::host_memories(hosts);
    for (size_t rank = 0; rank < group.size(); ++rank)
      test::share_memory(*group[rank], memories.at(hosts[rank]));
    return group;
  }
};

INSTANTIATE_TEST_SUITE_P(Tcp, TransportOver, ::testing::Values(Links::sockets, Links::rings, Links::both),
                         [](const auto& parameter) {
                           return std::string(parameter.param == Links::sockets ? "sockets"
                                              : parameter.param == Links::rings ? "rings"
                                                                                : "both");
                         });

TEST_P(TransportOver, DeliversMessagesOfAllSizesInOrder) {
  const std::vector<size_t> sizes = {1, 3, 0, 4096, 100000, 0, 0, 65537, 5, 3000000};
  // Few bytes per system call cut messages in every place; the huge ones would then take too long.
  for (const size_t most : {size_t{1} << 20, size_t{7}}) {
    for (const int size : {2, 3, 5}) {
      TcpOptions options;
      options.most_bytes_per_call = most;
      auto group = tcp_group(size, options);
      on_ranks(size, [&](int rank) {
        std::vector<std::vector<uint8_t>> out, in;
        for (const size_t bytes : sizes) {
          if (most < 100 && bytes > 5000) continue;
          for (int peer = 0; peer < size; ++peer) {
            if (peer == rank) continue;
            out.push_back(tcp_pattern(bytes, static_cast<size_t>(rank * 16 + peer)));
            in.emplace_back(bytes);
            group[static_cast<size_t>(rank)]->post_send(peer, out.back().data(), bytes);
            group[static_cast<size_t>(rank)]->post_receive(peer, in.back().data(), bytes);
          }
        }
        group[static_cast<size_t>(rank)]->finish(tcp_soon());
        size_t next = 0;
        for (const size_t bytes : sizes) {
          if (most < 100 && bytes > 5000) continue;
          for (int peer = 0; peer < size; ++peer)
            if (peer != rank) {
              EXPECT_EQ(in[next], tcp_pattern(bytes, static_cast<size_t>(peer * 16 + rank)));
              ++next;
            }
        }
      });
    }
  }
}

TEST_P(TransportOver, AwaitReturnsAsSoonAsTheOldestMessageIsComplete) {
  auto group = tcp_group(2);
  int first = 0, second = 0;
  group[1]->post_receive(0, &first, sizeof first);
  group[1]->post_receive(0, &second, sizeof second);
  const int one = 1, two = 2;
  group[0]->post_send(1, &one, sizeof one);
  group[0]->finish(tcp_soon());
  group[1]->await_receive(0, tcp_soon());  // would time out if it waited for the second
  EXPECT_EQ(first, 1);
  group[0]->post_send(1, &two, sizeof two);
  group[0]->finish(tcp_soon());
  group[1]->await_receive(0, tcp_soon());
  EXPECT_EQ(second, 2);
  test::expect_error<InvalidState>("rank 0", [&] { group[1]->await_receive(0, tcp_soon()); });
}

TEST_P(TransportOver, AMessageThatNobodyReceivesYetDelaysNoOther) {
  // Rank 0 sends far more to rank 1 than fits into the kernel's buffers; rank 1 first serves rank 2.
  auto group = tcp_group(3);
  const auto large = tcp_pattern(24 << 20, 1), small = tcp_pattern(1000, 2);
  on_ranks(3, [&](int rank) {
    std::vector<uint8_t> in(rank == 1 ? large.size() : 0), reply(1000);
    Transport& self = *group[static_cast<size_t>(rank)];
    if (rank == 0) self.post_send(1, large.data(), large.size());
    if (rank == 1) {
      self.post_receive(2, reply.data(), reply.size());
      self.await_receive(2, tcp_soon());
      EXPECT_EQ(reply, small);
      self.post_receive(0, in.data(), in.size());
    }
    if (rank == 2) self.post_send(1, small.data(), small.size());
    self.finish(tcp_soon());
    if (rank == 1) {
      EXPECT_EQ(in, large);
    }
  });
}

TEST_P(TransportOver, LargeMessagesInBothDirectionsCannotBlockEachOther) {
  auto group = tcp_group(2);
  const size_t bytes = 32 << 20;
  on_ranks(2, [&](int rank) {
    const auto out = tcp_pattern(bytes, static_cast<size_t>(rank));
    std::vector<uint8_t> in(bytes);
    Transport& self = *group[static_cast<size_t>(rank)];
    self.post_send(1 - rank, out.data(), bytes);
    self.post_receive(1 - rank, in.data(), bytes);
    self.await_receive(1 - rank, tcp_soon());
    self.finish(tcp_soon());
    EXPECT_EQ(in, tcp_pattern(bytes, static_cast<size_t>(1 - rank)));
  });
}

TEST_P(TransportOver, TheDeadlineNamesTheRanksThatAreMissing) {
  auto group = tcp_group(3);
  char byte = 0;
  group[0]->post_receive(1, &byte, 1);
  group[0]->post_receive(2, &byte, 1);
  group[2]->post_send(0, &byte, 1);
  group[2]->finish(tcp_soon());
  group[0]->await_receive(2, tcp_soon());
  const std::string message = test::error_of<Timeout>([&] { group[0]->finish(Deadline::after_ms(20)); });
  EXPECT_TRUE(contains(message, "rank 1 on host1 (0 of 1 bytes received)")) << message;
  EXPECT_FALSE(contains(message, "rank 2")) << message;
  // A transport that failed once stays unusable.
  test::expect_error<Timeout>("rank 1", [&] { group[0]->post_send(2, &byte, 1); });
  test::expect_error<Timeout>("rank 1", [&] { group[0]->finish(tcp_soon()); });
}

TEST_P(TransportOver, FlushSendsAndExpectsNothing) {
  int notices = 0;
  TcpOptions options;
  options.noticed_timeout = [&](int) { ++notices; };
  auto group = tcp_group(3, options);
  const int sent = 7;
  int got = 0, never = 0;
  group[0]->post_receive(2, &never, sizeof never);
  group[0]->post_send(1, &sent, sizeof sent);
  const auto begin = std::chrono::steady_clock::now();
  group[0]->flush(tcp_soon());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "it waited for a message";
  group[1]->post_receive(0, &got, sizeof got);
  group[1]->finish(tcp_soon());
  EXPECT_EQ(got, sent);
  // Neither a rank that takes nothing nor one that is gone is an error.
  const auto large = tcp_pattern(32 << 20, 1);
  group[0]->post_send(2, large.data(), large.size());
  group[0]->flush(Deadline::after_ms(50));
  group[1].reset();
  group[0]->post_send(1, large.data(), large.size());
  group[0]->flush(Deadline::after_ms(50));
  EXPECT_EQ(notices, 0);
  EXPECT_EQ(never, 0);
}

TEST_P(TransportOver, APeerThatTakesNothingIsATimeout) {
  auto group = tcp_group(2);
  const auto large = tcp_pattern(32 << 20, 1);
  group[0]->post_send(1, large.data(), large.size());
  test::expect_error<Timeout>("rank 1 on host1", [&] { group[0]->finish(Deadline::after_ms(50)); });
}

TEST_P(TransportOver, AClosedConnectionIsALostPeer) {
  auto group = tcp_group(3);
  group[2].reset();
  char bytes[2] = {};
  group[0]->post_receive(2, bytes, 2);
  const std::string message = test::error_of<PeerLost>([&] { group[0]->finish(tcp_soon()); });
  EXPECT_TRUE(contains(message, "rank 2 on host2")) << message;
  EXPECT_FALSE(contains(message, "rank 1")) << message;
  // The failed rank leaves, too. The others learn that rank 2 was gone before.
  group[0].reset();
  group[1]->post_receive(0, bytes, 2);
  test::expect_error<PeerLost>("closed, too: rank 2 on host2", [&] { group[1]->finish(tcp_soon()); });
}

TEST_P(TransportOver, WhatArrivedBeforeTheEndIsStillDelivered) {
  auto group = tcp_group(2);
  const auto out = tcp_pattern(50000, 3);
  std::vector<uint8_t> in(out.size());
  group[0]->post_send(1, out.data(), out.size());
  group[0]->finish(tcp_soon());
  group[0].reset();
  group[1]->post_receive(0, in.data(), in.size());
  group[1]->finish(tcp_soon());
  EXPECT_EQ(in, out);
}

TEST_P(TransportOver, TheExplanationOfALossReplacesItsSymptom) {
  TcpOptions options;
  options.explain_loss = [](int rank) { return "rank 7 died first, then " + std::to_string(rank); };
  auto group = tcp_group(2, options);
  group[1].reset();
  char byte = 0;
  group[0]->post_receive(1, &byte, 1);
  test::expect_error<PeerLost>("rank 7 died first, then 1", [&] { group[0]->finish(tcp_soon()); });
}

TEST_P(TransportOver, AWaitingRankSleeps) {
  const auto cpu_ms = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
  };
  auto group = tcp_group(3);
  char bytes[2] = {};
  group[0]->post_receive(1, bytes, 1);
  group[0]->post_receive(2, bytes + 1, 1);
  const auto before = cpu_ms();
  test::expect_error<Timeout>("rank 1", [&] { group[0]->finish(Deadline::after_ms(500)); });
  EXPECT_LT(cpu_ms() - before, 250);
}

TEST_P(TransportOver, AbortEndsARunningWait) {
  auto group = tcp_group(2);
  char byte = 0;
  group[0]->post_receive(1, &byte, 1);
  std::thread other([&] {
    group[0]->abort(std::make_exception_ptr(PeerLost("rank 5 is gone")));
    group[0]->abort(std::make_exception_ptr(PeerLost("second reason")));
  });
  test::expect_error<PeerLost>("rank 5 is gone", [&] { group[0]->finish(tcp_soon()); });
  other.join();
  test::expect_error<PeerLost>("rank 5 is gone", [&] { group[0]->post_receive(1, &byte, 1); });
}

TEST_P(TransportOver, RefusesARankThatIsNoPeer) {
  auto group = tcp_group(2);
  for (const int peer : {-1, 0, 2})
    test::expect_error<InvalidArgument>(std::to_string(peer), [&] { group[0]->post_send(peer, nullptr, 0); });
  EXPECT_EQ(group[0]->type(), GetParam() == Links::sockets ? "tcp" : "shm+tcp");
  EXPECT_EQ(group[0]->shares_memory(1), GetParam() == Links::rings);
  EXPECT_EQ(group[1]->rank(), 1);
  EXPECT_EQ(group[1]->size(), 2);
  EXPECT_EQ(group[1]->host(0), "host0");
}

TEST_P(TransportOver, SeededDelaysChangeNothing) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const int size = 2 + static_cast<int>(seed % 3);
    TcpOptions options;
    options.spin_us = seed % 2 == 0 ? 0 : 40;
    options.most_bytes_per_call = 1 + seed * 997;
    auto group = tcp_group(size, options);
    on_ranks(size, [&](int rank) {
      std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
      Transport& self = *group[static_cast<size_t>(rank)];
      for (size_t round = 0; round < 20; ++round) {
        const size_t bytes = 1 + (round * 131 + seed * 17) % 3000;
        std::vector<std::vector<uint8_t>> out, in(static_cast<size_t>(size));
        for (int peer = 0; peer < size; ++peer) {
          if (peer == rank) continue;
          // Yields a random number of times, so that the ranks meet in ever different orders.
          for (unsigned n = random() % 20; n > 0; --n) std::this_thread::yield();
          out.push_back(tcp_pattern(bytes, round + static_cast<size_t>(rank)));
          in[static_cast<size_t>(peer)].resize(bytes);
          self.post_send(peer, out.back().data(), bytes);
          self.post_receive(peer, in[static_cast<size_t>(peer)].data(), bytes);
        }
        for (int peer = size - 1; peer >= 0; --peer)
          if (peer != rank) {
            self.await_receive(peer, tcp_soon());
            EXPECT_EQ(in[static_cast<size_t>(peer)], tcp_pattern(bytes, round + static_cast<size_t>(peer)));
          }
        self.finish(tcp_soon());
      }
    });
  }
}

/// Rank 0 of two; rank 1 is a forked process that runs f.
struct WithForkedRank {
  WithForkedRank(Links links, const std::function<void(Transport&)>& f) {
    auto peers = test::tcp_peers(2);
    const test::Hosts hosts = hosts_of(links, 2);
    const auto memories =
        links == Links::sockets ? std::map<char, test::HostMemory>() : test::host_memories(hosts);
    const auto join = [&](int rank) {
      auto made = std::make_unique<TcpTransport>(rank, std::move(peers[static_cast<size_t>(rank)]));
      if (links != Links::sockets) test::share_memory(*made, memories.at(hosts[static_cast<size_t>(rank)]));
      return made;
    };
    child = test::fork_at_rest();
    if (child == 0) {
      peers[0][1].stream.reset();
      try {
        f(*join(1));
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    peers[1][0].stream.reset();
    self = join(0);
  }
  ~WithForkedRank() {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  pid_t child = -1;
  std::unique_ptr<TcpTransport> self;
};

TEST_P(TransportOver, AKilledProcessIsNamedAtOnce) {
  const WithForkedRank ranks(GetParam(), [](Transport& self) {
    char byte = 1;
    self.post_send(0, &byte, 1);
    self.post_receive(0, &byte, 1);
    self.finish(tcp_soon());
  });
  TcpTransport& self = *ranks.self;
  char bytes[2] = {};
  self.post_receive(1, bytes, 1);
  self.post_receive(1, bytes + 1, 1);
  self.await_receive(1, tcp_soon());  // the other process runs and waits
  ::kill(ranks.child, SIGKILL);
  test::expect_error<PeerLost>("rank 1 on host1", [&] { self.finish(tcp_soon()); });
}

TEST_P(TransportOver, AStoppedProcessIsATimeout) {
  const WithForkedRank ranks(GetParam(), [](Transport& self) {
    char byte = 1;
    self.post_send(0, &byte, 1);
    self.post_receive(0, &byte, 1);
    self.finish(tcp_soon());
  });
  TcpTransport& self = *ranks.self;
  char bytes[2] = {};
  self.post_receive(1, bytes, 1);
  self.post_receive(1, bytes + 1, 1);
  self.await_receive(1, tcp_soon());
  ::kill(ranks.child, SIGSTOP);
  test::expect_error<Timeout>("rank 1 on host1", [&] { self.finish(Deadline::after_ms(100)); });
}

TEST(TcpTransport, WhatARankSentBeforeItsConnectionBrokeArrivesAlthoughSendingFails) {
  auto peers = test::tcp_peers(2);
  Stream other = std::move(peers[0][1].stream);
  TcpTransport transport(1, std::move(peers[1]));
  const uint8_t byte = 7;
  transport.post_send(0, &byte, 1);
  transport.finish(tcp_soon());
  send_all(other, std::as_bytes(std::span("word")), tcp_soon());
  other.reset();  // a byte has not been read, so the kernel resets the connection
  char word[sizeof "word"] = {};
  transport.post_send(0, &byte, 1);
  transport.post_receive(0, word, sizeof word);
  transport.await_receive(0, tcp_soon());
  EXPECT_STREQ(word, "word");
  EXPECT_THROW(transport.finish(tcp_soon()), PeerLost);
}

}  // namespace
}  // namespace mx::comm
