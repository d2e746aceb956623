// The conformance suite over TCP: threads as ranks, over the loopback interface.

#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/tcp_transport.h"
#include "comm/transport_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/tcp/tcp_pairs.h"

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

const ConformanceCase kCut{.name = "tcp_cut", .make = make_cut_tcp, .most_ranks = 4, .size_scale = 0.05};

INSTANTIATE_TEST_SUITE_P(Tcp, Conformance, ::testing::Values(ConformanceCase{"tcp", make_tcp}, kCut),
                         conformance_name);

}  // namespace
}  // namespace mx::comm
