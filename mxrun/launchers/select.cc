#include "mxrun/launchers/select.h"

#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "comm/net/interface.h"
#include "comm/net/resolve.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/node_list.h"
#include "mxrun/hosts/placement.h"
#include "mxrun/hosts/text.h"

namespace mx::launch {
namespace {

/// A name that means this machine everywhere: "localhost" or a loopback address.
bool is_loopback_name(const std::string& name) {
  return name == "localhost" || name == "::1" || (name.starts_with("127.") && comm::is_loopback(name));
}

std::string this_host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::vector<Host> given_hosts(const Options& options) {
  MX_CHECK(options.hosts.empty() || options.hostfile.empty(), InvalidArgument,
           "[mxrun] expected -H or --hostfile, got both");
  if (!options.hosts.empty()) return parse_host_list(options.hosts);
  if (!options.hostfile.empty()) return read_hostfile(options.hostfile);
  return {};
}

int number_of(const Lookup& lookup, const char* name, int otherwise) {
  const std::optional<std::string> value = lookup(name);
  if (!value) return otherwise;
  return text::parse_number(*value).value_or(otherwise);
}

/// The numbers of tasks on the nodes of Slurm's allocation; nothing if nobody has asked for a number.
std::optional<std::vector<int>> asked_tasks(const Lookup& lookup) {
  const std::optional<std::string> counts = lookup("SLURM_TASKS_PER_NODE");
  if (!counts) return std::nullopt;
  std::vector<int> tasks = parse_repeated_counts(*counts);
  // Without a request Slurm says one task per node, which means nothing.
  const bool asked = lookup("SLURM_NTASKS") || lookup("SLURM_NTASKS_PER_NODE") ||
                     std::any_of(tasks.begin(), tasks.end(), [](int count) { return count > 1; });
  return asked ? std::optional(std::move(tasks)) : std::nullopt;
}

constexpr char kNoAllocation[] =
    "[mxrun] --launcher slurm: expected an allocation, got none (no SLURM_JOB_NODELIST); start it with: "
    "salloc "
    "-N 2 mxrun ..., or from a batch script; --launcher ssh needs no allocation";

std::optional<std::string> allocated_list(const Lookup& lookup) {
  std::optional<std::string> list = lookup("SLURM_JOB_NODELIST");
  return list ? list : lookup("SLURM_NODELIST");
}

/// Gives hosts that the user has named the order of Slurm's allocation. srun numbers the nodes in that order,
/// whatever the order of --nodelist, and an agent learns from this number which node's plan is its own.
void order_as_allocated(const Lookup& lookup, std::vector<Host>& hosts) {
  const std::optional<std::string> list = allocated_list(lookup);
  // srun would ask for an allocation itself, whose order of the nodes nobody knows before.
  MX_CHECK(list, InvalidArgument, kNoAllocation);
  const std::vector<std::string> names = parse_node_list(*list);
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  for (const Host& host : hosts) {
    MX_CHECK(places.count(host.name) > 0, InvalidArgument,
             "[mxrun] --launcher slurm: expected hosts of the allocation, ", text::quoted(*list), ", got ",
             text::quoted(host.name));
  }
  std::stable_sort(hosts.begin(), hosts.end(),
                   [&](const Host& a, const Host& b) { return places.at(a.name) < places.at(b.name); });
}

/// The nodes of Slurm's allocation. A node has as many slots as tasks were asked for, or as processors.
std::vector<Host> allocated_hosts(const Lookup& lookup) {
  const std::optional<std::string> list = allocated_list(lookup);
  MX_CHECK(list, InvalidArgument, kNoAllocation);
  std::vector<Host> hosts;
  for (std::string& name : parse_node_list(*list)) hosts.push_back({std::move(name), 1});
  const char* variable = "SLURM_TASKS_PER_NODE";
  std::optional<std::vector<int>> slots = asked_tasks(lookup);
  if (!slots) {
    variable = "SLURM_JOB_CPUS_PER_NODE";
    if (const std::optional<std::string> counts = lookup(variable)) slots = parse_repeated_counts(*counts);
  }
  if (!slots) return hosts;
  MX_CHECK(slots->size() == hosts.size(), InvalidArgument, "[mxrun] expected one count for each node in ",
           variable, ", got ", text::quoted(*lookup(variable)), " for ", text::quoted(*list));
  for (size_t i = 0; i < hosts.size(); ++i) hosts[i].slots = std::clamp((*slots)[i], 1, kMostSlots);
  return hosts;
}

/// --nproc-per-node: the same number on each host.
void set_slots(const Options& options, const std::string& launcher, std::vector<Host>& hosts) {
  if (options.per_node.empty()) return;
  const ProcessesPerNode asked = parse_processes_per_node(options.per_node);
  MX_CHECK(asked.kind == ProcessesPerNode::Kind::number, InvalidArgument,
           "[mxrun] --nproc-per-node: expected a number with the launcher ", launcher, ", got ",
           text::quoted(options.per_node), "; only the nodes know how many they have");
  for (Host& host : hosts) host.slots = asked.number;
}

void keep_first_nodes(const Options& options, std::vector<Host>& hosts) {
  if (options.nodes == 0 || hosts.empty()) return;
  const auto asked = static_cast<size_t>(options.nodes);
  MX_CHECK(hosts.size() >= asked, InvalidArgument, "[mxrun] --nnodes: expected at most ", hosts.size(),
           " nodes, the hosts that there are, got ", asked);
  hosts.resize(asked);
}

/// mxrun runs once and starts the agents itself.
void check_not_one_of_many(const Lookup& lookup) {
  const bool in_step = lookup("SLURM_STEP_ID") && lookup("SLURM_PROCID");
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (name[0] == 'S' && !in_step) continue;
    const int size = number_of(lookup, name, 1);
    MX_CHECK(size <= 1, InvalidArgument, "[mxrun] expected to be started once, got ", name, "=", size,
             ": start the program directly with srun or mpirun, or mxrun without them");
  }
}

std::string choose_name(const Options& options, const std::vector<Host>& hosts, const Lookup& lookup) {
  if (options.launcher != "auto") return options.launcher;
  if (!hosts.empty()) {
    const bool here = hosts.size() == 1 && (is_loopback_name(hosts[0].name) || hosts[0].name == this_host());
    return here ? "local" : "ssh";
  }
  if (!lookup("SLURM_JOB_ID") || !lookup("SLURM_JOB_NODELIST")) return "local";
  // A batch script on the only node needs no srun.
  return number_of(lookup, "SLURM_JOB_NUM_NODES", 2) == 1 && lookup("SLURMD_NODENAME") ? "local" : "slurm";
}

std::string resolved(const std::string& host) {
  int error = 0;
  const comm::AddressList found = comm::look_up({host, 0}, SOCK_STREAM, 0, error);
  if (!found) return host;
  char address[NI_MAXHOST] = "";
  if (getnameinfo(found->ai_addr, found->ai_addrlen, address, sizeof address, nullptr, 0, NI_NUMERICHOST) !=
      0)
    return host;
  return address;
}

class CarrierLauncher final : public Launcher {
 public:
  explicit CarrierLauncher(Selection selection) : selection_(std::move(selection)) {}
  std::string name() const override { return selection_.launcher; }
  bool remote() const override { return true; }
  std::unique_ptr<Session> start(const std::vector<NodePlan>& nodes, const AgentCommand& command) override {
    const auto line = [&](int node) { return command.line(node, true); };
    return start_carriers(carrier_commands(selection_, nodes, line),
                          text::hexadecimal(command.secret) + "\n");
  }

 private:
  const Selection selection_;
};

}  // namespace

std::optional<std::string> own_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

Selection select_launcher(const Options& options, const Lookup& lookup) {
  check_not_one_of_many(lookup);
  Selection selection;
  selection.hosts = given_hosts(options);
  selection.launcher = choose_name(options, selection.hosts, lookup);
  if (selection.launcher == "local") {
    for (const Host& host : selection.hosts)
      MX_CHECK(is_loopback_name(host.name) || host.name == this_host(), InvalidArgument,
               "[mxrun] --launcher local: expected no other hosts, got ", text::quoted(host.name));
    MX_CHECK(selection.hosts.size() <= 1, InvalidArgument,
             "[mxrun] --launcher local: expected one host, got ", selection.hosts.size());
    keep_first_nodes(options, selection.hosts);
    // Without hosts the number is looked at where it can also be "cpu" or "gpu".
    if (!options.per_node.empty()) selection.hosts.clear();
    // On the only node of an allocation the tasks that were asked for are the slots.
    const bool has_number = !selection.hosts.empty() || options.workers > 0 || !options.per_node.empty();
    if (!has_number && lookup("SLURM_JOB_ID") && number_of(lookup, "SLURM_JOB_NUM_NODES", 2) == 1) {
      const std::optional<std::vector<int>> tasks = asked_tasks(lookup);
      if (tasks && tasks->size() == 1) {
        selection.hosts.push_back({"localhost", std::clamp((*tasks)[0], 1, kMostSlots)});
      }
    }
    return selection;
  }
  if (selection.launcher == "ssh") {
    MX_CHECK(!selection.hosts.empty(), InvalidArgument,
             "[mxrun] --launcher ssh: expected hosts, got none: give -H or --hostfile");
    selection.program = lookup("MX_SSH").value_or("ssh");
  } else if (selection.launcher == "slurm") {
    if (selection.hosts.empty()) selection.hosts = allocated_hosts(lookup);
    selection.program = lookup("MX_SRUN").value_or("srun");
  } else {
    MX_CHECK(!selection.hosts.empty(), InvalidArgument,
             "[mxrun] --launcher mpi: expected hosts, got none: give -H or --hostfile, such as ",
             "--hostfile $PBS_NODEFILE");
    selection.program = lookup("MX_MPIRUN").value_or("mpirun");
  }
  keep_first_nodes(options, selection.hosts);
  if (selection.launcher == "slurm") order_as_allocated(lookup, selection.hosts);
  set_slots(options, selection.launcher, selection.hosts);
  return selection;
}

std::vector<CarrierCommand> carrier_commands(const Selection& selection, const std::vector<NodePlan>& nodes,
                                             const NodeLine& line) {
  if (selection.launcher == "ssh") return ssh_commands(selection.program, nodes, line);
  if (selection.launcher == "slurm") return slurm_commands(selection.program, nodes, line);
  if (selection.launcher == "mpi") return mpi_commands(selection.program, nodes, line);
  return {};
}

std::unique_ptr<Launcher> make_launcher(const Selection& selection) {
  if (selection.launcher == "local") return local_launcher();
  return std::make_unique<CarrierLauncher>(selection);
}

std::string program_on_nodes(const Lookup& lookup) {
  if (const std::optional<std::string> path = lookup("MX_MXRUN")) return *path;
  std::error_code none;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", none);
  return none ? "mxrun" : own.string();
}

ListenAt listen_address(const Options& options, const Selection& selection) {
  ListenAt at;
  const bool elsewhere = selection.launcher != "local" &&
                         !std::all_of(selection.hosts.begin(), selection.hosts.end(),
                                      [](const Host& host) { return is_loopback_name(host.name); });
  if (options.rendezvous.empty()) {
    MX_CHECK(!elsewhere, InvalidArgument, "[mxrun] --rdzv: expected the address or the network interface of ",
             "this machine that the nodes reach, as --rdzv eth0:0 or --rdzv 10.0.0.1:29500, got none");
    return at;
  }
  const comm::Endpoint endpoint = comm::parse_endpoint(options.rendezvous, true);
  const std::string number = resolved(endpoint.host);
  // A name that is both is the interface's: addresses are not names of interfaces.
  at.address = comm::address_of_interface(
      number == endpoint.host || if_nametoindex(endpoint.host.c_str()) != 0 ? endpoint.host : number);
  at.port = endpoint.port;
  MX_CHECK(!elsewhere || !comm::is_loopback(at.address), InvalidArgument,
           "[mxrun] --rdzv: expected an address that other machines reach, got ",
           text::quoted(options.rendezvous), ", which is ", at.address);
  return at;
}

}  // namespace mx::launch
