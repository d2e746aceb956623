#include "mxrun/guardian.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "mxrun/descendants.h"
#include "mxrun/exit_codes.h"

namespace mx::launch {
int guard(int close_here, const std::function<int(int guardian_fd)>& inner) {
  const pid_t launcher = getppid();
  const int launcher_fd = open_pidfd(launcher);
  // Fails if this process leads a process group already; then the carrier has made a group for it.
  setsid();
  become_subreaper();
  signal(SIGCHLD, SIG_DFL);  // ignored, children would vanish without a status
  const pid_t guardian = getpid();
  const int guardian_fd = open_pidfd(guardian);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NAME, "mxrun-agent", 0, 0, 0);
    if (launcher_fd >= 0) close(launcher_fd);
    _exit(inner(guardian_fd));
  }
  prctl(PR_SET_NAME, "mxrun-guard", 0, 0, 0);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2}) {
    signal(number, SIG_IGN);
  }
  if (guardian_fd >= 0) close(guardian_fd);
  if (close_here >= 0) close(close_here);
  if (child < 0) return 1;
  const int child_fd = open_pidfd(child);
  int result = 1;
  bool ended = false;
  const auto reaped = [&](pid_t pid, int status) {
    if (pid != child) return;
    ended = true;
    result = exit_code_of(status);
  };
  while (!ended) {
    pollfd watched[2] = {{child_fd, POLLIN, 0}, {launcher_fd, POLLIN, 0}};
    // Without pidfds (-1, which poll() ignores) the guardian looks every 50 ms.
    poll(watched, 2, child_fd >= 0 && launcher_fd >= 0 ? 1000 : 50);
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) reaped(pid, status);
    if (getppid() != launcher) break;
  }
  kill_descendants(kSweepMs, reaped);
  return result;
}

}  // namespace mx::launch
