// mxrun: starts the processes of a program and ends them together. See docs/mxrun.md.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/base/error.h"
#include "mxrun/agent.h"
#include "mxrun/launcher.h"
#include "mxrun/options.h"
#include "mxrun/planning.h"
#include "mxrun/process.h"
#include "mxrun/supervisor.h"

namespace mx::launch {
namespace {

int complain(int exit_code, const std::string& text) {
  std::fprintf(stderr, "mxrun: %s\n", text.c_str());
  return exit_code;
}

int run_agent_mode(const Options& options) {
  AgentOptions agent;
  if (options.agent_fd < 0) {
    return complain(kExitUsage, "--agent: expected --agent-fd, got none");
  }
  agent.channel_fd = options.agent_fd;
  agent.forward_stdin = true;
  agent.connect = [fd = options.agent_fd] { return socket_channel(fd); };
  return run_agent(agent);
}

// The path that finds programs is the one that the ranks get.
const char* path_variable(const Options& options) {
  for (const auto& [name, value] : options.environment) {
    if (name == "PATH") return value.c_str();
  }
  return std::getenv("PATH");
}

int start(Options options) {
  if (options.job.empty()) {
    options.job = "mx-" + std::to_string(getpid()) + "-" + new_secret().substr(0, 8);
  }
  if (options.launcher != "auto" && options.launcher != "local") {
    return complain(kExitConfiguration, "--launcher: expected auto or local, got " + options.launcher);
  }
  Job job;
  try {
    job.nodes = plan_nodes(options, local_hosts(options));
  } catch (const InvalidArgument& error) {
    return complain(kExitUsage, error.what());
  }
  if (options.dry_run) {
    std::fputs(describe(job.nodes).c_str(), stdout);
    return 0;
  }
  // Found before anything starts, so that there is one message and not one per rank.
  const FoundProgram program = find_program(options.program[0], path_variable(options), "");
  if (program.exit_code != 0) return complain(program.exit_code, program.problem);
  job.secret = options.secret_file.empty() ? new_secret() : secret_from_file(options.secret_file);
  if (options.check) {
    std::printf("mxrun: %s can be started on %zu node(s)\n", program.path.c_str(), job.nodes.size());
    return 0;
  }
  job.options = std::move(options);
  const std::unique_ptr<Launcher> launcher = local_launcher();
  return run_job(std::move(job), *launcher);
}

int run(int argc, const char* const* argv) {
  Parsed parsed = parse_options(argc, argv);
  if (parsed.exit_code >= 0) {
    std::fputs(parsed.text.c_str(), parsed.exit_code == 0 ? stdout : stderr);
    return parsed.exit_code;
  }
  try {
    if (parsed.options.agent) return run_agent_mode(parsed.options);
    return start(std::move(parsed.options));
  } catch (const AuthenticationError& error) {
    return complain(kExitAuthentication, error.what());
  } catch (const std::exception& error) {
    return complain(kExitConfiguration, error.what());
  }
}

}  // namespace
}  // namespace mx::launch

int main(int argc, char** argv) { return mx::launch::run(argc, argv); }
