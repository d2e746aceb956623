#include "mxrun/planning.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "comm/net/interface.h"
#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "mxrun/environment.h"
#include "mxrun/hosts/placement.h"

namespace mx::launch {
namespace {

constexpr char kChosenAtStart[] = "<chosen at start>";

// Counts the GPUs that the driver shows. Asking CUDA would take a second and memory on each GPU.
int count_gpus() {
  int count = 0;
  std::error_code none;
  for (std::filesystem::directory_iterator it("/proc/driver/nvidia/gpus", none), end; !none && it != end;
       it.increment(none)) {
    ++count;
  }
  return count;
}

std::string current_folder() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  MX_CHECK(!error, InvalidState, "the current folder cannot be used: ", error.message(),
           "; it may have been deleted or moved: enter a folder that exists, such as: cd ~");
  return path.string();
}

/// Returns the variables of a process for --dry-run, with kChosenAtStart for values that nobody knows yet.
Variables shown_variables(const NodePlan& node, const RankPlan& rank, const ListenAt& listen_at,
                          bool remote) {
  const std::string port = listen_at.port > 0 ? std::to_string(listen_at.port) : kChosenAtStart;
  NodePlan plan = node;
  plan.rendezvous = comm::to_string(comm::Endpoint{listen_at.address, 0});
  plan.rendezvous.replace(plan.rendezvous.rfind(':') + 1, std::string::npos, port);
  Variables variables = rank_variables(plan, rank, 0, -1);
  for (auto& [name, value] : variables) {
    if (name == "MASTER_PORT") value = kChosenAtStart;
  }
  variables.emplace_back("MX_SECRET_FD", kChosenAtStart);
  for (const char* name : {"MX_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* const own = remote ? nullptr : std::getenv(name);  // which the processes inherit
    variables.emplace_back(name, own != nullptr ? own : kChosenAtStart);
  }
  // On this machine the processes listen at loopback.
  if (remote) variables.emplace_back("MX_INTERFACE", kChosenAtStart);
  for (const auto& [name, value] : node.environment) {
    const auto same = [&name = name](const auto& variable) { return variable.first == name; };
    variables.erase(std::remove_if(variables.begin(), variables.end(), same), variables.end());
    variables.emplace_back(name, value);
  }
  return variables;
}

std::string absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

int workers_per_node(const std::string& text) {
  return processes_on_node(parse_processes_per_node(text), usable_cpus(), count_gpus());
}

std::vector<Host> local_hosts(Options* options) {
  MX_CHECK(options->nodes <= 1, InvalidArgument, "--nnodes: expected 1 with the launcher local, got ",
           options->nodes, "; name the other nodes with -H or --hostfile");
  int& workers = options->workers;
  // If one of the two stands in the command line and the other in the file, that of the command line counts.
  const bool workers_count = workers > 0 && !options->workers_in_file && options->per_node_in_file;
  const bool per_node_counts = options->workers_in_file && !options->per_node_in_file;
  if (!options->per_node.empty() && !workers_count) {
    const int per_node = workers_per_node(options->per_node);
    MX_CHECK(workers == 0 || workers == per_node || per_node_counts, InvalidArgument,
             "-n and --nproc-per-node disagree: expected ", per_node, " processes on one node, got -n ",
             workers);
    workers = per_node;
  }
  return {{"localhost", std::max(1, workers) + options->servers}};
}

comm::TlsSettings tls_settings(const Options& options) {
  comm::TlsSettings settings;
  if (!options.tls) return settings;
  settings.keys = options.tls_certificate.empty() ? comm::TlsKeys::secret : comm::TlsKeys::certificates;
  settings.certificate = absolute(options.tls_certificate);
  settings.key = absolute(options.tls_key);
  settings.authority = absolute(options.tls_authority);
  return settings;
}

std::vector<NodePlan> plan_nodes(const Options& options, const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  const int workers = options.workers > 0 ? options.workers : std::max(1, slots - options.servers);
  const std::vector<int> shown = parse_rank_list(options.ranks);
  for (const int rank : shown) {
    MX_CHECK(rank < workers, InvalidArgument, "--ranks: expected ranks below ", workers, ", got ", rank);
  }
  std::vector<NodePlan> nodes;
  for (const HostPlan& host : place_on_hosts(hosts, workers, options.servers)) {
    NodePlan plan;
    plan.job = options.job;
    plan.node = static_cast<int>(nodes.size());
    plan.host = host.host;
    plan.argv = options.program;
    plan.folder = current_folder();
    plan.environment = options.environment;
    plan.workers = workers;
    plan.servers = options.servers;
    for (const int rank : host.ranks) {
      plan.ranks.push_back({Role::worker, rank, static_cast<int>(plan.ranks.size()), 0});
    }
    plan.local_workers = static_cast<int>(host.ranks.size());
    plan.local_servers = 0;
    for (const int server : host.servers)
      plan.ranks.push_back({Role::server, server, plan.local_servers++, 0});
    plan.bind = options.bind;
    plan.tls = tls_settings(options);
    plan.timeout_ms = options.timeout_ms;
    plan.heartbeat_ms = options.heartbeat_ms;
    plan.dead_after_ms = options.dead_after_ms;
    plan.grace_ms = options.grace_ms;
    plan.output.tag = options.tag_output >= 0 ? options.tag_output == 1 : workers + options.servers > 1;
    plan.output.timestamp = options.timestamp_output;
    plan.output.log_dir = absolute(options.log_dir);
    plan.output.tee = options.tee || options.log_dir.empty();
    plan.output.shown = shown;
    nodes.push_back(std::move(plan));
  }
  for (NodePlan& node : nodes) node.nodes = static_cast<int>(nodes.size());
  return nodes;
}

void number_incarnations(std::vector<NodePlan>* nodes, int64_t* next) {
  for (NodePlan& node : *nodes) {
    for (RankPlan& rank : node.ranks) rank.incarnation = (*next)++;
  }
}

std::string describe(const std::vector<NodePlan>& nodes, const ListenAt& listen_at, bool remote) {
  std::string text = "job " + nodes[0].job + ": " + std::to_string(nodes[0].workers) + " workers, " +
                     std::to_string(nodes[0].servers) + " servers, " + std::to_string(nodes.size()) +
                     " nodes\n";
  text += "command:";
  for (const std::string& argument : nodes[0].argv) text += " " + argument;
  text += "\n";
  for (const NodePlan& node : nodes) {
    text += "node " + std::to_string(node.node) + " (" + node.host + ")\n";
    for (const RankPlan& rank : node.ranks) {
      text += "  " + process_name(rank.role, rank.rank) + ":";
      for (const auto& [name, value] : shown_variables(node, rank, listen_at, remote))
        text += " " + name + "=" + value;
      text += "\n";
    }
  }
  return text;
}

}  // namespace mx::launch
