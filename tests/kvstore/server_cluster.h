// Servers and workers of parameter servers, as threads of one process, for tests.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/net/tls.h"
#include "kvstore/dist_server.h"
#include "kvstore/server/server.h"
#include "kvstore/server/server_group.h"

namespace mx::test {

class ServerCluster {
 public:
  /// `tls`: encrypts the connections; null: does not.
  ServerCluster(int workers, int servers, int64_t timeout_ms = 60000,
                std::shared_ptr<const comm::TlsContext> tls = nullptr)
      : workers_(workers), timeout_ms_(timeout_ms), tls_(std::move(tls)) {
    for (int s = 0; s < servers; ++s) {
      comm::Identity self = identity(-1);
      self.tls = tls_;
      servers_.push_back(std::make_unique<kv::Server>(
          kv::ServerOptions{.number = s, .identity = std::move(self), .workers = workers}));
      threads_.emplace_back([server = servers_.back().get()] { server->run(); });
    }
  }
  ~ServerCluster() {
    for (auto& server : servers_) server->stop();
    for (auto& thread : threads_) thread.join();
  }

  static comm::Identity identity(int rank) {
    comm::Identity self;
    self.job = "kvstore-test";
    self.secret = "a secret of tests";
    self.rank = rank;
    return self;
  }

  std::vector<std::string> addresses() const {
    std::vector<std::string> all;
    for (const auto& server : servers_) all.push_back(server->address());
    return all;
  }
  kv::Server& server(int i) { return *servers_[static_cast<size_t>(i)]; }
  int workers() const { return workers_; }

  std::shared_ptr<kv::ServerGroup> connect(int rank, uint64_t incarnation = 0) const {
    kv::ServerGroupOptions options;
    options.identity = identity(rank);
    options.identity.tls = tls_;
    options.incarnation = incarnation;
    options.workers = workers_;
    options.servers = addresses();
    options.timeout_ms = timeout_ms_;
    return std::make_shared<kv::ServerGroup>(std::move(options));
  }

  /// Runs `body(store)` as each worker, in a thread each, and returns their errors.
  std::vector<std::exception_ptr> run(const std::string& type, const std::function<void(KVStore&)>& body,
                                      const KVStoreOptions& options = {}) const {
    std::vector<std::exception_ptr> errors(static_cast<size_t>(workers_));
    std::vector<std::thread> threads;
    for (int w = 0; w < workers_; ++w)
      threads.emplace_back([&, w] {
        try {
          const auto group = connect(w);
          mx::detail::DistServerStore store(type, options, group);
          body(store);
          store.barrier(0);
        } catch (...) {
          errors[static_cast<size_t>(w)] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
  /// The same; throws the first error.
  void run_or_throw(const std::string& type, const std::function<void(KVStore&)>& body,
                    const KVStoreOptions& options = {}) const {
    for (const std::exception_ptr& error : run(type, body, options))
      if (error != nullptr) std::rethrow_exception(error);
  }

 private:
  const int workers_;
  const int64_t timeout_ms_;
  const std::shared_ptr<const comm::TlsContext> tls_;
  std::vector<std::unique_ptr<kv::Server>> servers_;
  std::vector<std::thread> threads_;
};

}  // namespace mx::test
