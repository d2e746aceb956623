#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "benchmarks/comm/allreduce.h"
#include "comm/net/socket.h"
#include "comm/shm/rings.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/transport_communicator.h"

namespace mx::bench {
namespace {

/// Connections between all pairs of ranks, made before the ranks are forked. Element [rank][peer].
using Connections = std::vector<std::vector<comm::Fd>>;

std::shared_ptr<Connections> connect_all(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  auto all = std::make_shared<Connections>(n);
  for (auto& row : *all) row.resize(n);
  const comm::Deadline deadline = comm::Deadline::after_ms(10000);
  const comm::Listener listener = comm::listen_at("127.0.0.1");
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < a; ++b) {
      (*all)[a][b] = comm::connect_to(listener.at, deadline);
      (*all)[b][a] = comm::accept_one(listener.socket, deadline);
    }
  return all;
}

AllreduceSystem mx_tcp() {
  return {"mx_tcp", [](int ranks) {
            auto all = connect_all(ranks);
            return [all](int rank) {
              std::vector<comm::TcpPeer> peers;
              for (comm::Fd& socket : (*all)[static_cast<size_t>(rank)])
                peers.push_back({std::move(socket), "n"});
              return communicator_rank(
                  std::make_shared<comm::TransportCommunicator>(
                      std::make_unique<comm::TcpTransport>(rank, std::move(peers)), 60000),
                  false);
            };
          }};
}

/// Two hosts, simulated: the first half of the ranks and the others. `memory`: the ranks of a host share
/// memory. The cost model is measured first, as in a job.
AllreduceSystem mx_hosts(const std::string& name, bool memory, comm::Order order) {
  return {name, [memory, order](int ranks) {
            auto all = connect_all(ranks);
            struct Host {
              std::vector<int> members;
              comm::shm::SharedFiles files;
            };
            auto hosts = std::make_shared<std::vector<Host>>(2);
            for (int rank = 0; rank < ranks; ++rank)
              (*hosts)[rank < (ranks + 1) / 2 ? 0 : 1].members.push_back(rank);
            for (Host& host : *hosts)
              if (host.members.size() > 1)
                host.files = comm::shm::Rings::create(static_cast<int>(host.members.size()));
            return [=](int rank) {
              std::vector<comm::TcpPeer> peers;
              for (comm::Fd& socket : (*all)[static_cast<size_t>(rank)])
                peers.push_back({std::move(socket), peers.size() < (*hosts)[0].members.size() ? "a" : "b"});
              auto transport = std::make_unique<comm::TcpTransport>(rank, std::move(peers));
              const Host& host = (*hosts)[rank < (ranks + 1) / 2 ? 0 : 1];
              const int size = static_cast<int>(host.members.size());
              if (memory)
                transport->share_memory(
                    size < 2 ? nullptr
                             : std::make_unique<comm::shm::Rings>(host.files, rank - host.members[0], size),
                    host.members);
              auto group = std::make_shared<comm::TransportCommunicator>(std::move(transport), 60000);
              group->fit();
              return communicator_rank(std::move(group), false, order);
            };
          }};
}

/// The limit of the loopback interface: every rank exchanges a slice with every other rank, twice, as an
/// allreduce does. Nothing is added up or checked.
class LoopbackRank final : public AllreduceRank {
 public:
  LoopbackRank(std::shared_ptr<Connections> all, int rank)
      : all_(std::move(all)), rank_(static_cast<size_t>(rank)) {
    others_.resize(all_->size());
  }
  float* allocate(size_t count) override {
    memory_.emplace_back(count, 1.0f);
    return memory_.back().data();
  }
  void allreduce(float* values, size_t count) override {
    const size_t bytes = count * sizeof(float) / others_.size();
    for (auto& other : others_) other.resize(bytes);
    for (int step = 0; step < 2; ++step) exchange(reinterpret_cast<char*>(values), bytes);
  }
  void barrier() override {
    char byte = 0;
    for (auto& other : others_) other.resize(1);
    exchange(&byte, 1);
  }

 private:
  void exchange(const char* out, size_t bytes) {
    std::vector<size_t> sent(others_.size()), received(others_.size());
    for (size_t left = others_.size() - 1; left > 0;) {
      bool any = false;
      for (size_t peer = 0; peer < others_.size(); ++peer) {
        if (peer == rank_ || (sent[peer] == bytes && received[peer] == bytes)) continue;
        const int fd = (*all_)[rank_][peer].get();
        any |= advance(::send(fd, out + sent[peer], bytes - sent[peer], MSG_DONTWAIT | MSG_NOSIGNAL),
                       sent[peer]);
        any |=
            advance(::recv(fd, others_[peer].data() + received[peer], bytes - received[peer], MSG_DONTWAIT),
                    received[peer]);
        left -= sent[peer] == bytes && received[peer] == bytes;
      }
      if (!any) sched_yield();
    }
  }
  static bool advance(ssize_t moved, size_t& total) {
    if (moved < 0 && errno != EAGAIN) throw std::runtime_error("connection lost");
    total += static_cast<size_t>(std::max<ssize_t>(moved, 0));
    return moved > 0;
  }

  const std::shared_ptr<Connections> all_;
  const size_t rank_;
  std::vector<std::vector<char>> others_;
  std::vector<std::vector<float>> memory_;
};

AllreduceSystem loopback() {
  return {"loopback",
          [](int ranks) {
            auto all = connect_all(ranks);
            return [all](int rank) { return std::make_unique<LoopbackRank>(all, rank); };
          },
          false};
}

}  // namespace

std::vector<AllreduceSystem> tcp_systems() {
  using comm::Order;
  return {mx_tcp(),
          loopback(),
          mx_hosts("mx_tcp_2hosts", false, Order::rank),
          mx_hosts("mx_shm_tcp_2hosts", true, Order::rank),
          mx_hosts("mx_tcp_2hosts_any", false, Order::any),
          mx_hosts("mx_shm_tcp_2hosts_any", true, Order::any)};
}

}  // namespace mx::bench
