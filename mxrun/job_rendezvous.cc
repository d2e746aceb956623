#include "mxrun/job_rendezvous.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/rendezvous/client.h"
#include "comm/rendezvous/departures.h"
#include "comm/rendezvous/lost.h"
#include "comm/rendezvous/server.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/report.h"

namespace mx::launch {
namespace {

// For the connection of mxrun to its own rendezvous.
constexpr int64_t kConnectMs = 10000;

comm::RendezvousServerOptions server_options(const JobRendezvous::Settings& settings) {
  comm::RendezvousServerOptions options;
  options.self.job = settings.job;
  options.self.secret = settings.secret;
  options.self.tls = settings.tls;
  options.self.epoch = 0;
  options.address = settings.address;
  options.port = settings.port;
  options.dead_after_ms = settings.dead_after_ms;
  return options;
}

comm::RendezvousClientOptions client_options(const JobRendezvous::Settings& settings,
                                             const std::string& address) {
  comm::RendezvousClientOptions options;
  options.address = address;
  options.self.job = settings.job;
  options.self.secret = settings.secret;
  options.self.tls = settings.tls;
  options.self.epoch = comm::kAnyEpoch;
  options.host = "mxrun";
  options.role = "launcher";
  options.heartbeat_ms = settings.heartbeat_ms;
  options.dead_after_ms = 0;
  return options;
}

}  // namespace

struct JobRendezvous::State {
  explicit State(const Settings& settings)
      : server(server_options(settings)),
        client(client_options(settings, server.address()), comm::Deadline::after_ms(kConnectMs)) {}
  ~State() {
    unwatch();
    close(event);
  }

  static int new_event() {
    const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    MX_CHECK(event >= 0, CommunicationError, "[mxrun] the eventfd of the rendezvous: ", std::strerror(errno));
    return event;
  }
  static comm::Role role_of(const std::string& name) {
    return name == "server" ? comm::Role::server : comm::Role::worker;
  }
  void notify() const {
    const uint64_t one = 1;
    if (write(event, &one, sizeof(one)) < 0) return;  // the counter is full, so it is readable
  }
  void lost(std::string_view key, std::string_view value) {
    const comm::LostProcess process = comm::parse_lost(key, value);
    const std::lock_guard lock(mutex);
    found.push_back({process.epoch, role_of(process.role), process.rank, process.step, process.reason});
    notify();
  }
  void because(std::string_view key, std::string_view value) {
    const comm::Consequence read = comm::parse_consequence(key, value);
    const std::lock_guard lock(mutex);
    causes.push_back({read.epoch, role_of(read.process.role), read.process.rank, role_of(read.cause.role),
                      read.cause.rank, read.late});
    notify();
  }
  void unwatch() {
    for (const uint64_t watch : watches) client.unwatch(watch);
    watches.clear();
  }

  const int event = new_event();
  std::mutex mutex;
  std::vector<LostRank> found;       // guarded by mutex
  std::vector<FailsBecause> causes;  // guarded by mutex
  comm::RendezvousServer server;
  comm::RendezvousClient client;
  std::vector<uint64_t> watches;
};

JobRendezvous::JobRendezvous(const Settings& settings) : state_(std::make_unique<State>(settings)) {
  set_epoch(0);
}

JobRendezvous::~JobRendezvous() = default;

const std::string& JobRendezvous::address() const { return state_->server.address(); }

comm::Rendezvous* JobRendezvous::table() { return &state_->client; }

void JobRendezvous::set_epoch(int64_t epoch) {
  state_->server.set_epoch(epoch);
  state_->unwatch();
  state_->watches.push_back(state_->client.watch(
      comm::consequence_prefix(epoch),
      [state = state_.get()](std::string_view key, std::string_view value) { state->because(key, value); }));
  state_->watches.push_back(state_->client.watch(
      comm::lost_prefix(epoch),
      [state = state_.get()](std::string_view key, std::string_view value) { state->lost(key, value); }));
}

void JobRendezvous::put_lost(int64_t epoch, comm::Role role, int rank, const std::string& host,
                             const std::string& reason) {
  const comm::LostProcess lost{epoch, role_name(role), rank, host, -1, reason};
  try {
    state_->client.put(comm::lost_key(lost), comm::lost_value(lost));
  } catch (const Error&) {
    // The rendezvous itself has seen the connection of the process break, and was faster.
  }
}

void JobRendezvous::put_ended(int64_t epoch, comm::Role role, int rank, const std::string& host) {
  try {
    state_->client.put(comm::ended_key(epoch, role_name(role), rank), host);
  } catch (const Error&) {
    // The process itself has said farewell, with another spelling of the name of its host.
  }
}

int64_t JobRendezvous::step_of(int64_t epoch, comm::Role role, int rank) const {
  return state_->server.step_of(epoch, {role_name(role), rank});
}

int JobRendezvous::lost_fd() const { return state_->event; }

std::vector<LostRank> JobRendezvous::take_lost() {
  const std::lock_guard lock(state_->mutex);
  uint64_t count = 0;
  if (read(state_->event, &count, sizeof(count)) < 0 && state_->found.empty()) return {};
  return std::exchange(state_->found, {});
}

std::vector<FailsBecause> JobRendezvous::take_causes() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->causes, {});
}

}  // namespace mx::launch
