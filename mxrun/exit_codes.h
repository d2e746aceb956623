// The exit codes of mxrun itself; docs/mxrun.md explains them. Otherwise mxrun ends with the code of the
// process that failed first.
#pragma once

#include <sys/wait.h>

namespace mx::launch {

inline constexpr int kExitUsage = 2, kExitRendezvous = 69, kExitBind = 71, kExitAuthentication = 77,
                     kExitConfiguration = 78, kExitTimeout = 124, kExitCannotExecute = 126,
                     kExitNotFound = 127;

/// Returns the exit code for what waitpid() has reported: the process's own, or 128 + signal.
inline int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace mx::launch
