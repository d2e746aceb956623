// The server of this process: found by its place, ended by SIGTERM.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "comm/host_name.h"
#include "comm/net/interface.h"
#include "comm/net/tls.h"
#include "comm/rendezvous/lost.h"
#include "comm/start.h"
#include "comm/world.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "kvstore/server/server.h"

namespace mx::kv {
namespace {

std::atomic<Server*> running_server{nullptr};

void stop_running_server(int) {
  Server* const server = running_server.load();
  if (server != nullptr) server->stop();
}

/// Ends the server at SIGTERM while it lives.
class StopAtTerm {
 public:
  explicit StopAtTerm(Server& server) {
    running_server.store(&server);
    struct sigaction action {};
    action.sa_handler = stop_running_server;
    ::sigaction(SIGTERM, &action, &before_);
  }
  ~StopAtTerm() {
    ::sigaction(SIGTERM, &before_, nullptr);
    running_server.store(nullptr);
  }

 private:
  struct sigaction before_ {};
};

/// Tells the server of lost processes while it lives.
class LossWatch {
 public:
  LossWatch(Server& server, std::shared_ptr<comm::Rendezvous> rendezvous, int64_t epoch)
      : rendezvous_(std::move(rendezvous)),
        watch_(rendezvous_->watch(
            comm::lost_prefix(epoch), [&server](std::string_view key, std::string_view value) {
              const comm::LostProcess lost = comm::parse_lost(key, value);
              server.report_lost("[kvstore] expected all processes of the job to live, got a loss: " +
                                     to_string(lost) + comm::cause_of_loss(lost),
                                 lost.role == "worker" ? lost.rank : -1);
            })) {}
  ~LossWatch() { rendezvous_->unwatch(watch_); }
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;

 private:
  const std::shared_ptr<comm::Rendezvous> rendezvous_;
  const uint64_t watch_;
};

/// Returns the address to listen at: one that workers reach.
std::string listen_address(const comm::Place& place) {
  if (!place.interface.empty()) return comm::address_of_interface(place.interface);
  return comm::address_towards(comm::parse_endpoint(place.rendezvous),
                               comm::Deadline::after_ms(place.timeout_ms));
}

}  // namespace

int run_server() {
  const comm::Place& place = comm::place();
  MX_CHECK(place.role == comm::Role::server, InvalidState,
           "[run_server] expected a process with the role of a ", "server (MX_ROLE=server), got a worker");
  MX_CHECK(!place.rendezvous.empty(), InvalidState,
           "[run_server] expected a rendezvous (MX_RDZV), got none; ", "mxrun -s starts servers");
  const std::shared_ptr<comm::Rendezvous> rendezvous = comm::rendezvous();
  ServerOptions options;
  options.number = place.rank;
  options.workers = place.workers;
  options.identity.job = place.job.substr(0, comm::Identity::kLongestJob);
  options.identity.secret = comm::secret_of_job();
  options.identity.tls = comm::tls_of_process();
  options.identity.epoch = place.epoch;
  options.address = listen_address(place);
  MX_CHECK(!options.identity.secret.empty() || comm::is_loopback(options.address), InvalidArgument,
           "[run_server] expected a secret, because the server listens at ", options.address, ", got none");
  options.noticed_loss = [rendezvous, &place](int worker) {
    comm::report_consequence(*rendezvous, {place.epoch, {"server", place.rank}, {"worker", worker}});
  };
  Server server(std::move(options));
  bool ended = false, told = false;
  {
    const StopAtTerm stop(server);
    rendezvous->put(comm::epoch_key(place.epoch, "server/" + std::to_string(place.rank)),
                    server.address() + " " + comm::host_name());
    const LossWatch watch(server, rendezvous, place.epoch);
    ended = server.run();
    told = server.stopped();
  }
  if (!ended && server.left_workers()) {
    log(LogLevel::error, "[kvstore] a server ends by SIGTERM while workers use it");
    // As for a process without a handler, so that its end is a failure with a signal.
    ::signal(SIGTERM, SIG_DFL);
    ::raise(SIGTERM);
  }
  return ended || told ? 0 : 1;
}

}  // namespace mx::kv
