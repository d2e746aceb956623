// The processes below this one, found in /proc, and their end.
//
// A process with PR_SET_CHILD_SUBREAPER stays an ancestor of everything that is started below it, whatever
// sessions and process groups these processes make.
//
// Thread-safety: one thread at a time; no other thread may wait for children.
#pragma once

#include <sys/types.h>

#include <functional>

namespace mx::launch {

/// How long agents and launcher wait for killed processes to be gone.
inline constexpr int kSweepMs = 10000;

/// Sends SIGKILL to all processes below this one and waits until they are gone, at most `limit_ms`; processes
/// that hang in the kernel can take long. Calls `reaped(pid, status)` for each child that ended. Returns
/// false if processes are left.
bool kill_descendants(int limit_ms, const std::function<void(pid_t, int)>& reaped);

/// Makes this process the one that inherits orphans from below it.
void become_subreaper();

/// Returns a file descriptor that is readable when the process has ended, close-on-exec; -1 if the kernel
/// has none or the process is gone.
int open_pidfd(pid_t pid);

}  // namespace mx::launch
