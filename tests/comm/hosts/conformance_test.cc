// The conformance suite over shared memory within simulated hosts and TCP between them: threads as ranks.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/tcp/tcp_transport.h"
#include "comm/transport_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/forwarding_transport.h"
#include "tests/comm/hosts/shared_pairs.h"

namespace mx::comm {
namespace {

using Group = std::vector<std::shared_ptr<Communicator>>;

Group hosts_communicators(const test::Hosts& hosts, const TcpOptions& options = {}) {
  Group group;
  for (auto& transport : test::shared_group(hosts, options))
    group.push_back(std::make_shared<TransportCommunicator>(std::move(transport), 60000));
  return group;
}

/// Two ranks on each host, one on the last if their number is odd.
Group make_pairs(int ranks) {
  test::Hosts hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts += static_cast<char>('a' + rank / 2);
  return hosts_communicators(hosts);
}

/// The ranks of two hosts alternate.
Group make_alternating(int ranks) {
  test::Hosts hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts += "ab"[rank % 2];
  return hosts_communicators(hosts);
}

Group make_one_host(int ranks) { return hosts_communicators(test::Hosts(static_cast<size_t>(ranks), 'a')); }

/// All ranks but the second one share a host. Steps of few bytes cut headers and elements in the middle, and
/// each wait sleeps.
Group make_cut(int ranks) {
  TcpOptions options;
  options.most_bytes_per_call = 1021;
  options.spin_us = 0;
  test::Hosts hosts(static_cast<size_t>(ranks), 'a');
  if (ranks > 1) hosts[1] = 'b';
  return hosts_communicators(hosts, options);
}

const ConformanceCase kCut{.name = "cut", .make = make_cut, .most_ranks = 4, .size_scale = 0.05};

INSTANTIATE_TEST_SUITE_P(Hosts, Conformance,
                         ::testing::Values(ConformanceCase{"pairs", make_pairs},
                                           ConformanceCase{"alternating", make_alternating},
                                           ConformanceCase{"one_host", make_one_host}, kCut),
                         conformance_name);

/// Each algorithm of allreduce, with ranks of a host that follow each other, that alternate, and that are
/// alone.
class HostsAlgorithm : public ::testing::TestWithParam<Algorithm> {};

TEST_P(HostsAlgorithm, AddsLikeTheSerialFold) {
  for (const test::Hosts hosts : {"aab", "abab", "aabb", "abacab"}) {
    const int ranks = static_cast<int>(hosts.size());
    const Group group = hosts_communicators(hosts);
    for (const auto& member : group) dynamic_cast<TransportCommunicator&>(*member).set_algorithm(GetParam());
    for (const Type type : {Type::f32, Type::bf16, Type::i32})
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1001}, size_t{400'003}}) {
        std::vector<std::vector<unsigned char>> rows;
        for (int r = 0; r < ranks; ++r) rows.push_back(test_data(type, count, r, count + 9));
        const auto expected = serial_fold(rows, type);
        std::vector<std::vector<unsigned char>> any(static_cast<size_t>(ranks));
        expect_ranks(group, [&](int r, Communicator& member) {
          for (const Order order : {Order::any, Order::rank}) {
            std::vector<unsigned char> sum(rows[0].size());
            CallOptions call;
            call.order = order;
            member.allreduce(rows[static_cast<size_t>(r)].data(), sum.data(), count, type, call);
            // In another order, sums of floating-point numbers have other bits.
            if (order == Order::rank || type == Type::i32 || folds_by_rank(GetParam())) {
              EXPECT_EQ(sum, expected) << to_string(order) << ' ' << count << " x " << to_string(type)
                                       << " on rank " << r << " of " << hosts;
            }
            if (order == Order::any) any[static_cast<size_t>(r)] = sum;
          }
        });
        for (const auto& sum : any) EXPECT_EQ(sum, any[0]) << "all ranks get equal results";
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, HostsAlgorithm,
                         ::testing::Values(Algorithm::gather, Algorithm::direct, Algorithm::ring,
                                           Algorithm::two_level),
                         [](const auto& parameter) { return std::string(to_string(parameter.param)); });

TEST(HostsCommunicator, TheModelMeasuresTwoLevelsWhereHostsHaveSeveralRanks) {
  for (const test::Hosts hosts : {"aabb", "abab", "ab", "aa"}) {
    const Group group = hosts_communicators(hosts);
    const bool levels = hosts.size() > 2;
    expect_ranks(group, [&](int, Communicator& member) {
      const CostModel model = dynamic_cast<TransportCommunicator&>(member).fit();
      for (const CostModel::Sample& sample : model.samples()) {
        EXPECT_EQ(sample.us[static_cast<size_t>(Algorithm::two_level)] > 0, levels) << hosts;
        EXPECT_GT(sample.us[static_cast<size_t>(Algorithm::direct)], 0) << hosts;
      }
    });
  }
}

/// Counts the bytes of messages to other hosts.
class CountedCable final : public testing::ForwardingTransport {
 public:
  CountedCable(std::unique_ptr<Transport> below, std::shared_ptr<std::atomic<size_t>> bytes)
      : ForwardingTransport(std::move(below)), bytes_(std::move(bytes)) {}
  void post_send(int peer, const void* data, size_t bytes) override {
    if (machine(peer) != machine(rank())) *bytes_ += bytes;
    below_->post_send(peer, data, bytes);
  }

 private:
  const std::shared_ptr<std::atomic<size_t>> bytes_;
};

// With two levels, each of two hosts sends as many bytes as the result has: half of its sums, and half of the
// result. With direct exchange, each of its two ranks sends that many.
TEST(HostsCommunicator, TwoLevelsSendHalfTheBytesSoASlowNetworkMakesThemTheChoice) {
  const test::Hosts hosts = "abab";
  std::map<char, std::shared_ptr<std::atomic<size_t>>> cables;
  Group group;
  for (auto& transport : test::shared_group(hosts)) {
    auto& cable = cables[hosts[group.size()]];
    if (cable == nullptr) cable = std::make_shared<std::atomic<size_t>>();
    group.push_back(std::make_shared<TransportCommunicator>(
        std::make_unique<CountedCable>(std::move(transport), cable), 60000));
  }
  constexpr size_t kCount = 64 * 1024;
  const auto bytes_sent = [&](Algorithm algorithm) {
    for (const auto& member : group) dynamic_cast<TransportCommunicator&>(*member).set_algorithm(algorithm);
    for (const auto& cable : cables) *cable.second = 0;
    expect_ranks(group, [&](int, Communicator& member) {
      std::vector<float> values(kCount, 1.0f);
      CallOptions call;
      call.order = Order::any;
      member.allreduce(values.data(), values.data(), kCount, Type::f32, call);
      EXPECT_EQ(values, std::vector<float>(kCount, 4.0f)) << to_string(algorithm);
    });
    return std::map<char, size_t>{{'a', *cables['a']}, {'b', *cables['b']}};
  };
  // The times of a network that is much slower than everything else.
  CostModel::Sample sample{kCount * sizeof(float), {}};
  std::map<Algorithm, std::map<char, size_t>> sent;
  for (const Algorithm algorithm :
       {Algorithm::gather, Algorithm::direct, Algorithm::ring, Algorithm::two_level}) {
    sent[algorithm] = bytes_sent(algorithm);
    sample.us[static_cast<size_t>(algorithm)] =
        static_cast<double>(std::max(sent[algorithm].at('a'), sent[algorithm].at('b')));
  }
  CostModel model = dynamic_cast<TransportCommunicator&>(*group[0]).model();
  model.set_samples({sample});
  EXPECT_EQ(to_string(model.choose(sample.bytes, Order::any)), std::string("two_level")) << model.describe();
  EXPECT_NE(to_string(model.choose(sample.bytes, Order::rank)), std::string("two_level"));

  for (const char host : {'a', 'b'}) {
    // Each message has a small header.
    EXPECT_NEAR(static_cast<double>(sent[Algorithm::two_level].at(host)), kCount * sizeof(float), 4096)
        << host;
    EXPECT_NEAR(static_cast<double>(sent[Algorithm::direct].at(host)), 2 * kCount * sizeof(float), 4096)
        << host;
  }
}

}  // namespace
}  // namespace mx::comm
