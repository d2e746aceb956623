#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "mxrun/launcher.h"
#include "mxrun/launchers/open_files.h"
#include "mxrun/launchers/write_signals.h"

namespace mx::launch {
namespace {

constexpr int kAgentFd = 3;

class LocalSession : public Session {
 public:
  LocalSession(pid_t pid, int fd) : carriers_{{pid, "the agent", {0}}}, channel_(socket_channel(fd)) {}

  const std::vector<Carrier>& carriers() const override { return carriers_; }
  std::unique_ptr<Channel> take_channel(int) override { return std::move(channel_); }

 private:
  std::vector<Carrier> carriers_;
  std::unique_ptr<Channel> channel_;
};

class LocalLauncher : public Launcher {
 public:
  std::string name() const override { return "local"; }
  bool remote() const override { return false; }

  std::unique_ptr<Session> start(const std::vector<NodePlan>& nodes, const AgentCommand& command) override {
    MX_CHECK(nodes.size() == 1, InvalidArgument, "[mxrun] expected one node with the launcher local, got ",
             nodes.size());
    int ends[2];
    MX_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, CommunicationError,
             "[mxrun] cannot make a socket for the agent: ", strerror(errno));
    // The name that tools such as ps show; the file is that of the running program, even if it was replaced.
    const std::string fd = std::to_string(kAgentFd);
    const char* const argv[] = {"mxrun",      "--agent",  "--job-id", command.job.c_str(),
                                "--agent-fd", fd.c_str(), nullptr};
    const pid_t pid = fork();
    if (pid == 0) {
      // Only calls that are safe in signal handlers: the rendezvous has threads.
      if (ends[1] == kAgentFd) {
        fcntl(ends[1], F_SETFD, 0);
      } else {
        dup2(ends[1], kAgentFd);
      }
      restore_write_signals();
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      restore_open_files();
      execv(command.program.c_str(), const_cast<char* const*>(argv));
      _exit(127);
    }
    const int error = errno;
    close(ends[1]);
    if (pid < 0) close(ends[0]);
    MX_CHECK(pid > 0, CommunicationError, "[mxrun] cannot start the agent: ", strerror(error));
    return std::make_unique<LocalSession>(pid, ends[0]);
  }
};

}  // namespace

std::unique_ptr<Launcher> local_launcher() { return std::make_unique<LocalLauncher>(); }

}  // namespace mx::launch
