// --check on other machines.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "comm/deadline.h"
#include "mxrun/exit_codes.h"
#include "mxrun/launchers/select.h"

namespace mx::launch {
namespace {

// Exit codes of kCheckScript.
constexpr int kMissingMxrun = 41, kMissingFolder = 42, kMissingProgram = 43, kNotExecutable = 44;
// Its arguments are the path of mxrun, the folder and the program. Some shells find with `command -v` also
// files that are not executable, so paths are tested by hand.
constexpr char kCheckScript[] = R"(command -v "$1" >/dev/null || exit 41
cd "$2" || exit 42
case $3 in
  */*) [ -e "$3" ] || exit 43; [ -x "$3" ] && [ ! -d "$3" ] || exit 44;;
  *) command -v "$3" >/dev/null || exit 43;;
esac
exit 0)";

std::string meaning_of(int code, const CarrierCommand& command, const NodePlan& node,
                       const std::string& mxrun) {
  if (code == kMissingMxrun) return "no mxrun at " + mxrun;
  if (code == kMissingFolder) return "no folder " + node.folder;
  if (code == kMissingProgram) return "no program " + node.argv[0];
  if (code == kNotExecutable) return node.argv[0] + " is not executable";
  return command.name + " ended with exit code " + std::to_string(code);
}

}  // namespace

int check_nodes(const Options& options, const Selection& selection, const std::vector<NodePlan>& nodes,
                const std::string& mxrun) {
  signal(SIGCHLD, SIG_DFL);  // ignored, children would vanish without a status
  const auto line = [&](int) {
    return std::vector<std::string>{
        "/bin/sh", "-c", kCheckScript, "mxrun-check", mxrun, nodes[0].folder, nodes[0].argv[0]};
  };
  const std::vector<CarrierCommand> commands = carrier_commands(selection, nodes, line);
  const std::unique_ptr<Session> session = start_carriers(commands, "");
  const auto deadline =
      comm::Deadline::after_ms(options.start_timeout_ms > 0 ? options.start_timeout_ms : options.timeout_ms);
  int result = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    const CarrierCommand& command = commands[i];
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(session->carriers()[i].pid, &status, WNOHANG)) == 0 && !deadline.passed())
      poll(nullptr, 0, 10);
    const NodePlan& node = nodes[static_cast<size_t>(command.nodes[0])];
    const std::string where = command.nodes.size() == 1 ? node.host : command.name;
    if (ended == 0) {
      std::printf("%s: no answer in time\n", where.c_str());
      result = kExitTimeout;
      continue;
    }
    if (ended < 0) {
      std::printf("%s: expected the exit code of %s, got: %s\n", where.c_str(), command.name.c_str(),
                  std::strerror(errno));
      if (result == 0) result = kExitConfiguration;
      continue;
    }
    const int code = exit_code_of(status);
    std::printf("%s: %s\n", where.c_str(), code == 0 ? "ok" : meaning_of(code, command, node, mxrun).c_str());
    if (code == 0 || result != 0) continue;
    // A program that is missing has the exit code that starting it would have.
    result = code == kMissingProgram  ? kExitNotFound
             : code == kNotExecutable ? kExitCannotExecute
                                      : kExitConfiguration;
  }
  return result;
}

}  // namespace mx::launch
