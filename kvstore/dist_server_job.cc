// The stores with servers of the job to which this process belongs.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "comm/in_steps.h"
#include "comm/net/tls.h"
#include "comm/rendezvous/lost.h"
#include "comm/start.h"
#include "comm/world.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/engine.h"
#include "kvstore/dist_server.h"
#include "kvstore/server/server.h"

namespace mx::detail {
namespace {

/// The connections of this process to the servers of its job.
struct JobServers {
  std::mutex mutex;
  std::shared_ptr<kv::ServerGroup> group;  // guarded by mutex
  std::atomic<pid_t> process = 0;          // that made the group
};

JobServers& job_servers() {
  static JobServers& instance = *new JobServers;  // never destroyed: operations may run until the very end
  return instance;
}

// Runs after the engine has drained, because the engine's handler is registered later, on its first use. A
// process that fails says no farewell: so the servers, and by them the other workers, learn of its end.
[[maybe_unused]] const int says_farewell = ::on_exit(
    [](int status, void*) {
      JobServers& servers = job_servers();
      // A forked child must not take the mutex, which another thread may have held at the fork.
      if (status != 0 || servers.process != ::getpid()) return;
      std::shared_ptr<kv::ServerGroup> group;
      {
        const std::lock_guard lock(servers.mutex);
        group = servers.group;
      }
      if (group != nullptr) group->leave();
    },
    nullptr);

/// Returns where a server listens, and its host. Waits until the server has started.
std::string find_server(int server, const kv::ServerGroupOptions& group, comm::Deadline deadline) {
  const std::string key = comm::epoch_key(group.identity.epoch, "server/" + std::to_string(server));
  try {
    return comm::in_steps(group.check, deadline,
                          [&](comm::Deadline moment) { return group.rendezvous->get(key, moment); });
  } catch (const Timeout&) {
    comm::report_consequence(
        *group.rendezvous, {group.identity.epoch, {"worker", group.identity.rank}, {"server", server}, true});
    throw Timeout(concat("[KVStore] expected server ", server, " to start within ", group.timeout_ms,
                         " ms, got no sign of it; does its program make the same store?"));
  }
}

std::shared_ptr<kv::ServerGroup> connect_to_servers() {
  const comm::Place& place = comm::place();
  const std::shared_ptr<comm::Rendezvous> rendezvous = comm::rendezvous();
  MX_CHECK(place.servers > 0 && rendezvous != nullptr, InvalidArgument,
           "[KVStore] expected a job with servers for this type of store, got ", place.servers,
           " servers; mxrun -n 4 -s 2 starts four workers and two servers");
  JobServers& servers = job_servers();
  const std::lock_guard lock(servers.mutex);
  if (servers.group != nullptr) return servers.group;
  kv::ServerGroupOptions group;
  group.timeout_ms = place.timeout_ms;  // that of a store belongs to its calls
  group.identity.job = place.job.substr(0, comm::Identity::kLongestJob);
  group.identity.secret = comm::secret_of_job();
  group.identity.tls = comm::tls_of_process();
  group.identity.epoch = place.epoch;
  group.identity.rank = place.rank;
  group.incarnation = static_cast<uint64_t>(place.incarnation);
  group.workers = place.size;
  group.rendezvous = rendezvous;
  group.check = comm::check_processes;
  group.cause_of_loss = comm::cause_of_loss;
  const comm::Deadline deadline = comm::Deadline::after_ms(group.timeout_ms);
  for (int s = 0; s < place.servers; ++s) group.servers.push_back(find_server(s, group, deadline));
  servers.group = std::make_shared<kv::ServerGroup>(std::move(group));
  servers.process = ::getpid();
  return servers.group;
}

}  // namespace

std::shared_ptr<KVStore> make_dist_server_store(const std::string& type, const KVStoreOptions& options) {
  if (comm::place().role == comm::Role::server) std::exit(kv::run_server());
  Engine::get();  // registers its handler at exit after that of this file
  return std::make_shared<DistServerStore>(type, options, connect_to_servers());
}

}  // namespace mx::detail
