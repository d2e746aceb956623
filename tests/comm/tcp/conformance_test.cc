// The conformance suite over TCP: threads as ranks, over the loopback interface.

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/tcp/tcp_transport.h"
#include "comm/transport_communicator.h"
#include "engine/base/error.h"
#include "tests/comm/conformance.h"
#include "tests/comm/forwarding_transport.h"
#include "tests/comm/tcp/tcp_pairs.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

std::vector<std::shared_ptr<Communicator>> tcp_communicators(int ranks, const TcpOptions& options) {
  std::vector<std::shared_ptr<Communicator>> group;
  for (auto& transport : test::tcp_group(ranks, options))
    group.push_back(std::make_shared<TransportCommunicator>(std::move(transport), 60000));
  return group;
}

std::vector<std::shared_ptr<Communicator>> make_tcp(int ranks) { return tcp_communicators(ranks, {}); }

/// System calls of few bytes cut headers and elements in the middle.
std::vector<std::shared_ptr<Communicator>> make_cut_tcp(int ranks) {
  TcpOptions options;
  options.most_bytes_per_call = 1021;
  options.spin_us = 0;
  return tcp_communicators(ranks, options);
}

/// Delays every step of a transport by a random time, always the same ones for the same seed: the ranks
/// arrive in ever different orders.
class DelayingTransport final : public testing::ForwardingTransport {
 public:
  DelayingTransport(std::unique_ptr<Transport> below, unsigned seed)
      : ForwardingTransport(std::move(below)), random_(seed) {}
  void post_send(int peer, const void* data, size_t bytes) override {
    delay();
    below_->post_send(peer, data, bytes);
  }
  void await_receive(int peer, Deadline deadline) override {
    delay();
    below_->await_receive(peer, deadline);
  }
  void finish(Deadline deadline) override {
    delay();
    below_->finish(deadline);
  }

 private:
  void delay() {
    // Up to some ten microseconds of work. Giving up the processor would take far longer on a busy machine.
    for (unsigned n = random_() % 4 == 0 ? random_() % 20000 : 0; n > 0; --n) asm volatile("" ::: "memory");
  }

  std::minstd_rand random_;
};

std::vector<std::shared_ptr<Communicator>> make_delayed_tcp(int ranks, unsigned first_seed) {
  std::vector<std::shared_ptr<Communicator>> group;
  unsigned seed = first_seed + static_cast<unsigned>(ranks);
  for (auto& transport : test::tcp_group(ranks))
    group.push_back(std::make_shared<TransportCommunicator>(
        std::make_unique<DelayingTransport>(std::move(transport), seed += 1000), 60000));
  return group;
}

std::vector<std::shared_ptr<Communicator>> make_tls(int ranks) {
  std::vector<std::shared_ptr<Communicator>> group;
  for (auto& transport : test::tls_group(ranks))
    group.push_back(std::make_shared<TransportCommunicator>(std::move(transport), 60000));
  return group;
}

/// As make_cut_tcp(): parts of messages are shorter than records, and records shorter than messages.
std::vector<std::shared_ptr<Communicator>> make_cut_tls(int ranks) {
  TcpOptions options;
  options.most_bytes_per_call = 1021;
  options.spin_us = 0;
  std::vector<std::shared_ptr<Communicator>> group;
  for (auto& transport : test::tls_group(ranks, options))
    group.push_back(std::make_shared<TransportCommunicator>(std::move(transport), 60000));
  return group;
}

const ConformanceCase kPlain{.name = "tcp", .make = make_tcp, .adds_megabytes = true};
const ConformanceCase kTls{.name = "tls", .make = make_tls, .most_ranks = 4};
const ConformanceCase kCutTls{.name = "tls_cut", .make = make_cut_tls, .most_ranks = 3, .size_scale = 0.05};
ConformanceCase tcp_with_delays(unsigned seed, int most_ranks) {
  return {.name = "tcp_delays" + std::to_string(seed),
          .make = [seed](int ranks) { return make_delayed_tcp(ranks, 100'000 * seed); },
          .most_ranks = most_ranks,
          .size_scale = 0.1};
}
const ConformanceCase kCut{.name = "tcp_cut", .make = make_cut_tcp, .most_ranks = 4, .size_scale = 0.05};

/// After a mismatch of two ranks, the third one, which is busy, must not be reported as late.
TEST(TcpCommunicator, AMismatchBlamesNoRankThatIsBusy) {
  std::atomic<int> late{-1};
  TcpOptions options;
  options.noticed_timeout = [&late](int rank) { late = rank; };
  const auto group = tcp_communicators(3, options);
  std::vector<std::vector<float>> values(3, std::vector<float>(20));
  const auto add = [&](int rank, Communicator& member) {
    float* const data = values[static_cast<size_t>(rank)].data();
    member.allreduce(data, data, rank == 0 ? 10 : 20, Type::f32);
  };
  const auto errors = run_ranks(group, [&](int rank, Communicator& member) {
    if (rank < 2) add(rank, member);
  });
  EXPECT_TRUE(is_error<ProtocolError>(errors[0])) << error_text(errors[0]);
  EXPECT_TRUE(is_error<ProtocolError>(errors[1])) << error_text(errors[1]);
  EXPECT_EQ(late.load(), -1);
  const auto later = run_ranks(group, [&](int rank, Communicator& member) {
    if (rank == 2) add(rank, member);
  });
  EXPECT_TRUE(is_error<ProtocolError>(later[2])) << error_text(later[2]);
}

/// A rank whose call differs finds that out and is gone before the others have compared. What it sent
/// explains their loss, whichever rank they wait for.
TEST(TcpCommunicator, ARankThatIsGoneAfterAMismatchHasSaidWhy) {
  for (int round = 0; round < 20; ++round) {
    auto group = tcp_communicators(3, {});
    std::vector<std::vector<float>> values(3, std::vector<float>(100'000));
    const auto add = [&](int rank, size_t count) {
      float* const data = values[static_cast<size_t>(rank)].data();
      group[static_cast<size_t>(rank)]->allreduce(data, data, count, Type::f32);
    };
    std::string first, last;
    std::thread other([&] { first = test::error_of<ProtocolError>([&] { add(1, 100); }); });
    last = test::error_of<ProtocolError>([&] { add(2, 200); });
    other.join();
    group[1] = group[2] = nullptr;  // gone, and their headers are on their way to rank 0
    const std::string late = test::error_of<ProtocolError>([&] { add(0, 100); });
    EXPECT_NE(late.find("200 x f32"), std::string::npos) << late;
    EXPECT_NE(first.find("200 x f32"), std::string::npos) << first;
    EXPECT_NE(last.find("100 x f32"), std::string::npos) << last;
  }
}

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance,
                         ::testing::Values(kPlain, kCut, tcp_with_delays(1, 9), tcp_with_delays(2, 4),
                                           tcp_with_delays(3, 3), kTls, kCutTls),
                         conformance_name);

/// Each algorithm of allreduce over real connections, cut into parts of few bytes.
class TcpAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(TcpAlgorithm, AddsLikeTheSerialFold) {
  for (const int ranks : {2, 3, 4}) {
    TcpOptions options;
    options.most_bytes_per_call = ranks == 3 ? 1021 : options.most_bytes_per_call;
    std::vector<std::shared_ptr<Communicator>> group;
    int rank = 0;
    for (auto& peers : test::tcp_peers(ranks)) {
      // Two ranks on each host, for the algorithm with two levels.
      for (size_t peer = 0; peer < peers.size(); ++peer) peers[peer].host = "host" + std::to_string(peer / 2);
      const auto member = std::make_shared<TransportCommunicator>(
          std::make_unique<TcpTransport>(rank++, std::move(peers), options), 60000);
      member->set_algorithm(GetParam());
      group.push_back(member);
    }
    for (const Type type : {Type::f32, Type::bf16, Type::i32})
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1001}, size_t{40'003}}) {
        std::vector<std::vector<unsigned char>> rows;
        for (int r = 0; r < ranks; ++r) rows.push_back(test_data(type, count, r, count + 9));
        const auto expected = serial_fold(rows, type);
        std::vector<std::vector<unsigned char>> any(static_cast<size_t>(ranks));
        expect_ranks(group, [&](int r, Communicator& member) {
          auto& out = any[static_cast<size_t>(r)];
          for (const Order order : {Order::any, Order::rank}) {
            std::vector<unsigned char> sum(rows[0].size());
            CallOptions call;
            call.order = order;
            member.allreduce(rows[static_cast<size_t>(r)].data(), sum.data(), count, type, call);
            // In another order, sums of floating-point numbers have other bits.
            if (order == Order::rank || type == Type::i32 || folds_by_rank(GetParam())) {
              EXPECT_EQ(sum, expected) << to_string(order) << ' ' << count << " x " << to_string(type)
                                       << " on rank " << r << " of " << ranks;
            }
            if (order == Order::any) out = sum;
          }
        });
        for (const auto& sum : any) EXPECT_EQ(sum, any[0]) << "all ranks get equal results";
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpAlgorithm,
                         ::testing::Values(Algorithm::gather, Algorithm::direct, Algorithm::ring,
                                           Algorithm::two_level),
                         [](const auto& parameter) { return std::string(to_string(parameter.param)); });

}  // namespace
}  // namespace mx::comm
