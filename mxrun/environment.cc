#include "mxrun/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace mx::launch {

Variables rank_variables(const NodePlan& plan, const RankPlan& rank, int threads, int secret_fd) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const bool server = rank.role == Role::server;
  const int size = server ? plan.servers : plan.workers;
  const int local_size = server ? plan.local_servers : plan.local_workers;
  Variables variables{
      {"MX_ROLE", server ? "server" : "worker"},
      {"MX_RANK", text(rank.rank)},
      {"MX_WORLD_SIZE", text(size)},
      {"MX_LOCAL_RANK", text(rank.local_rank)},
      {"MX_LOCAL_WORLD_SIZE", text(local_size)},
      {"MX_NODE_RANK", text(plan.node)},
      {"MX_NUM_SERVERS", text(plan.servers)},
      {"MX_NUM_WORKERS", text(plan.workers)},
      {"MX_RDZV", plan.rendezvous},
      {"MX_JOB_ID", plan.job},
      {"MX_EPOCH", text(plan.epoch)},
      {"MX_INCARNATION", text(rank.incarnation)},
      {"MX_RESTART_COUNT", text(plan.restarts)},
      {"MX_DEVICE", text(rank.local_rank)},
      {"MX_TIMEOUT_MS", text(plan.timeout_ms)},
      {"MX_HEARTBEAT_MS", text(plan.heartbeat_ms)},
      {"MX_DEAD_AFTER_MS", text(plan.dead_after_ms)},
      {"MX_TLS", comm::to_string(plan.tls.keys)},
      // The names that PyTorch's programs read.
      {"RANK", text(rank.rank)},
      {"WORLD_SIZE", text(size)},
      {"LOCAL_RANK", text(rank.local_rank)},
      {"LOCAL_WORLD_SIZE", text(local_size)},
      // The names that MXNet's programs read.
      {"DMLC_ROLE", server ? "server" : "worker"},
      {"DMLC_NUM_WORKER", text(plan.workers)},
      {"DMLC_NUM_SERVER", text(plan.servers)},
      {server ? "DMLC_SERVER_ID" : "DMLC_WORKER_ID", text(rank.rank)},
  };
  const size_t colon = plan.rendezvous.rfind(':');
  if (colon != std::string::npos) {
    const std::string host = plan.rendezvous.substr(0, colon), port = plan.rendezvous.substr(colon + 1);
    variables.emplace_back("MASTER_ADDR", host);
    variables.emplace_back("MASTER_PORT", plan.master_port > 0 ? text(plan.master_port) : port);
    variables.emplace_back("DMLC_PS_ROOT_URI", host);
    variables.emplace_back("DMLC_PS_ROOT_PORT", port);
  }
  if (plan.tls.keys == comm::TlsKeys::certificates) {
    variables.emplace_back("MX_TLS_CERT", plan.tls.certificate);
    variables.emplace_back("MX_TLS_KEY", plan.tls.key);
    variables.emplace_back("MX_TLS_CA", plan.tls.authority);
  }
  if (secret_fd >= 0) variables.emplace_back("MX_SECRET_FD", text(secret_fd));
  if (threads > 0) {
    variables.emplace_back("MX_NUM_THREADS", text(threads));
    variables.emplace_back("OMP_NUM_THREADS", text(threads));
  }
  return variables;
}

std::vector<std::string> variables_of_mxrun() {
  NodePlan plan;
  plan.rendezvous = "host:1";  // with a rendezvous, a secret and certificates all variables are there
  plan.tls.keys = comm::TlsKeys::certificates;
  std::vector<std::string> names;
  for (const Role role : {Role::worker, Role::server}) {
    RankPlan rank;
    rank.role = role;
    for (const auto& [name, value] : rank_variables(plan, rank, 0, 0)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> rank_environment(const NodePlan& plan, const RankPlan& rank, int threads,
                                          int secret_fd) {
  std::map<std::string, std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const char* const equals = std::strchr(*variable, '=');
    if (equals != nullptr) all[std::string(*variable, static_cast<size_t>(equals - *variable))] = equals + 1;
  }
  // Variables of a job around this one would name a descriptor, a rendezvous or files that are not this
  // job's.
  for (const char* name : {"MX_SECRET_FD", "MX_RDZV", "MX_TLS_CERT", "MX_TLS_KEY", "MX_TLS_CA"})
    all.erase(name);
  for (const auto& [name, value] : plan.environment) all[name] = value;
  for (const auto& [name, value] : rank_variables(plan, rank, threads, secret_fd)) {
    const bool thread_count = name == "MX_NUM_THREADS" || name == "OMP_NUM_THREADS";
    if (thread_count && all.count(name) > 0) continue;
    all[name] = value;
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : all) result.push_back(name + "=" + value);
  return result;
}

}  // namespace mx::launch
