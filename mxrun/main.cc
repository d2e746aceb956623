// mxrun: starts the processes of a program and ends them together. See docs/mxrun.md.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/net/interface.h"
#include "comm/transport_communicator.h"
#include "comm/world.h"
#include "engine/base/error.h"
#include "mxrun/agent.h"
#include "mxrun/completion.h"
#include "mxrun/exit_codes.h"
#include "mxrun/launcher.h"
#include "mxrun/launchers/agent_side.h"
#include "mxrun/launchers/open_files.h"
#include "mxrun/launchers/select.h"
#include "mxrun/manifest/kubernetes.h"
#include "mxrun/options.h"
#include "mxrun/planning.h"
#include "mxrun/process.h"
#include "mxrun/supervisor.h"
#include "mxrun/supervisor_parts.h"
#include "mxrun/top.h"

namespace mx::launch {
namespace {

int complain(int exit_code, const std::string& text) {
  print_message(text);
  return exit_code;
}

/// The agent of another machine, started by ssh, srun or mpirun.
int run_remote_agent(const Options& options) {
  const int node = agent_node(options);
  const std::string secret =
      options.secret_stdin ? read_hexadecimal_secret(STDIN_FILENO) : secret_from_file(options.secret_file);
  // The ranks listen at the interface through which this machine reaches the rendezvous.
  const std::string interface = interface_towards(options.rendezvous);
  if (!interface.empty()) setenv("MX_INTERFACE", interface.c_str(), 0);
  forget_task_variables();
  AgentOptions agent;
  agent.secret = secret;
  agent.connect = [&] { return connect_agent(options, node, secret); };
  return run_agent(agent);
}

int run_agent_mode(const Options& options) {
  AgentOptions agent;
  if (options.agent_fd < 0) return run_remote_agent(options);
  agent.channel_fd = options.agent_fd;
  agent.forward_stdin = true;
  agent.connect = [fd = options.agent_fd] { return socket_channel(fd); };
  return run_agent(agent);
}

/// One rank of --tune: measures with the others, and rank 0 prints.
int run_tune_rank() {
  // Shared memory, which the ranks of a single host would use, has fixed algorithms; messages are what can be
  // tuned.
  const bool one_host = comm::place().local_size == comm::place().size;
  const auto made =
      one_host && std::getenv("MX_TRANSPORT") == nullptr ? comm::new_group("tcp") : comm::world();
  const auto group = std::dynamic_pointer_cast<comm::TransportCommunicator>(made);
  if (group == nullptr) {
    return complain(kExitConfiguration,
                    "--tune: expected a transport with a cost model, such as tcp, got " + made->type());
  }
  const std::string table = group->model().describe();  // measured when the group was made
  if (group->rank() == 0) {
    std::printf("cost model of %s with %d ranks\n%s", group->type().c_str(), group->size(), table.c_str());
  }
  return 0;
}

/// Makes --tune a job whose program is mxrun itself.
void make_tune_job(Options* options) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  options->program = {std::string(path, size > 0 ? static_cast<size_t>(size) : 0), "--tune-rank"};
  const bool says_how_many = options->workers != 0 || !options->per_node.empty() || !options->hosts.empty() ||
                             !options->hostfile.empty();
  if (!says_how_many) options->workers = 2;
  options->tag_output = 0;
}

// The path that finds programs is the one that the ranks get.
const char* path_variable(const Options& options) {
  const char* path = std::getenv("PATH");
  for (const auto& [name, value] : options.environment) {
    if (name == "PATH") path = value.c_str();  // the last one counts
  }
  return path;
}

int print_manifests(const Options& options) {
  if (!options.dry_run) {
    return complain(kExitUsage,
                    "--launcher k8s: expected --dry-run, which prints manifests; pass them to: kubectl "
                    "apply -f -");
  }
  ManifestOptions manifest;
  manifest.name = options.job;
  manifest.argv = options.program;
  manifest.environment = options.environment;
  manifest.workers = std::max(1, options.workers);
  manifest.servers = options.servers;
  manifest.timeout_ms = options.timeout_ms;
  manifest.heartbeat_ms = options.heartbeat_ms;
  manifest.dead_after_ms = options.dead_after_ms;
  manifest.grace_ms = options.grace_ms;
  manifest.tls = options.tls;
  try {
    for (const std::string& settings : options.kubernetes) read_kubernetes_settings(settings, manifest);
    std::fputs(kubernetes_manifests(manifest).c_str(), stdout);
    // A generated name is another one each time, so a later call cannot show the name of this secret.
    if (options.job_made_up && manifest.name == options.job && manifest.secret.empty())
      std::fprintf(stderr, "mxrun: the pods wait for a secret; make it once: %s\n",
                   command_for_secret(manifest).c_str());
  } catch (const InvalidArgument& error) {
    return complain(kExitUsage, error.what());
  }
  return 0;
}

/// Returns the keys of mxrun itself. Checks them, so that there is one message and not one per process.
std::shared_ptr<const comm::TlsContext> make_tls(const Options& options) {
  const comm::TlsSettings settings = tls_settings(options);
  if (settings.keys == comm::TlsKeys::none) return nullptr;
  try {
    auto context = std::make_shared<const comm::TlsContext>(settings);
    context->check_own_certificate();
    return context;
  } catch (const Error&) {
    std::rethrow_exception(rewrite_current_exception([](const std::string& text) {
      constexpr std::string_view kPlace = "[tls] ";
      return "--tls-cert: " + (text.starts_with(kPlace) ? text.substr(kPlace.size()) : text);
    }));
  }
}

/// Prints the commands that a launcher would run, for --dry-run.
void print_commands(const Options& options, const Selection& selection, const Job& job) {
  AgentCommand agent;
  agent.program = program_on_nodes();
  agent.job = options.job;
  agent.heartbeat_ms = options.heartbeat_ms;
  agent.dead_after_ms = options.dead_after_ms;
  agent.tls = tls_settings(options);
  agent.rendezvous =
      comm::to_string(comm::Endpoint{job.listen_address, static_cast<uint16_t>(job.listen_port)});
  for (const CarrierCommand& command :
       carrier_commands(selection, job.nodes, [&](int node) { return agent.line(node, true); }))
    std::printf("%s: %s\n", command.name.c_str(), shell_line(command.argv).c_str());
}

int start(Options options) {
  if (options.job.empty()) {
    options.job_made_up = true;
    options.job = "mx-" + std::to_string(getpid()) + "-" + new_secret().substr(0, 8);
  }
  if (options.launcher == "k8s") return print_manifests(options);
  Job job;
  Selection selection;
  try {
    selection = select_launcher(options);
    const std::vector<Host> hosts = selection.hosts.empty() ? local_hosts(&options) : selection.hosts;
    job.nodes = plan_nodes(options, hosts);
  } catch (const InvalidArgument& error) {
    return complain(kExitUsage, error.what());
  }
  try {
    const ListenAt at = listen_address(options, selection);
    job.listen_address = at.address;
    job.listen_port = at.port;
  } catch (const InvalidArgument& error) {
    return complain(kExitUsage, (options.rendezvous.empty() ? "" : "--rdzv: ") + std::string(error.what()));
  }
  if (options.dry_run) {
    const ListenAt at{job.listen_address, job.listen_port};
    std::fputs(describe(job.nodes, at, selection.launcher != "local").c_str(), stdout);
    print_commands(options, selection, job);
    return 0;
  }
  job.tls = make_tls(options);
  if (selection.launcher != "local") {
    if (options.check) {
      check_listen_address(job);
      return check_nodes(options, selection, job.nodes, program_on_nodes());
    }
    job.secret = options.secret_file.empty() ? new_secret() : secret_from_file(options.secret_file);
    job.options = std::move(options);
    return run_job(std::move(job), *make_launcher(selection));
  }
  // Found before anything starts, so that there is one message and not one per rank.
  const FoundProgram program = find_program(options.program[0], path_variable(options), "");
  if (program.exit_code != 0) return complain(program.exit_code, program.problem);
  job.secret = options.secret_file.empty() ? new_secret() : secret_from_file(options.secret_file);
  job.options = std::move(options);
  if (job.options.check) {
    check_listen_address(job);
    std::printf("mxrun: %s can be started on %zu node(s)\n", program.path.c_str(), job.nodes.size());
    return 0;
  }
  const std::unique_ptr<Launcher> launcher = local_launcher();
  return run_job(std::move(job), *launcher);
}

int run(int argc, const char* const* argv) {
  // A program of this name is started by `mxrun -- top`.
  if (argc > 1 && std::strcmp(argv[1], "top") == 0) return run_top(argc - 1, argv + 1);
  Parsed parsed = parse_options(argc, argv);
  if (parsed.exit_code >= 0) {
    std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
    return parsed.exit_code;
  }
  try {
    if (parsed.options.tune_rank) return run_tune_rank();
    if (parsed.options.tune) make_tune_job(&parsed.options);
    if (parsed.options.agent) return run_agent_mode(parsed.options);
    if (parsed.options.man || !parsed.options.completion.empty()) {
      const std::vector<OptionHelp> table = option_table();
      const std::string text =
          parsed.options.man ? man_page(table) : completion_script(parsed.options.completion, table);
      std::fputs(text.c_str(), stdout);
      return 0;
    }
    return start(std::move(parsed.options));
  } catch (const BindFailed& error) {
    return complain(kExitBind, error.what());
  } catch (const AuthenticationError& error) {
    return complain(kExitAuthentication, error.what());
  } catch (const std::exception& error) {
    return complain(kExitConfiguration, error.what());
  }
}

/// Opens /dev/null for standard streams that are closed. Otherwise another file would get their number, and
/// output would be written into it. Says that output is lost.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is taken, which is this one.
    if (open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) < 0) return;
    if (fd == 1 && fcntl(2, F_GETFD) >= 0)
      print_message("standard output is closed, so what would be written to it is lost");
  }
}

/// Writes what is left in the buffer of standard output. Returns the exit code: that of a failure if this was
/// not possible.
int finish_output(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return complain(exit_code != 0 ? exit_code : 1,
                  std::string("cannot write to standard output: ") + std::strerror(errno));
}

}  // namespace
}  // namespace mx::launch

int main(int argc, char** argv) {
  mx::launch::open_standard_streams();
  mx::launch::raise_open_files();
  return mx::launch::finish_output(mx::launch::run(argc, argv));
}
