// fork() for tests whose process has other threads.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/error.h"

namespace mx::test {

/// Blocks until every other thread of the process sleeps. A forked child inherits locks in whatever state
/// they are at the fork. The C library repairs its own locks, and the engine needs none in the child. But the
/// destructors of oneTBB, and the allocators and thread lists of sanitizers, may wait forever for a lock that
/// another thread (for instance, one that has just been started) held at the fork.
inline void await_sleeping_threads() {
  for (bool busy = true; busy;) {
    busy = false;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (task.path().filename() == std::to_string(gettid())) continue;
      std::ifstream in(task.path() / "stat");
      std::string stat;
      std::getline(in, stat);
      const size_t end = stat.rfind(')');
      busy = busy || (end != std::string::npos && stat[end + 2] != 'S');
    }
  }
}

inline pid_t fork_at_rest() {
  await_sleeping_threads();
  return fork();
}

/// Runs `body` in a forked child, which then ends with the exit code that `body` returns, and without the
/// handlers at exit. A child whose body throws prints the error and ends with 100; one that takes longer than
/// 20 s is killed. Returns "exit code 0" and the like, or "signal 14". Programs with threads that never sleep
/// pass `fork` itself.
template <class Body>
std::string run_in_child(const Body& body, pid_t (*fork_now)() = fork_at_rest) {
  const pid_t child = fork_now();
  if (child < 0) return "no child";
  if (child == 0) {
    alarm(20);
    try {
      _exit(body());
    } catch (const std::exception& e) {
      std::fprintf(stderr, "in the forked child: %s\n", e.what());
    }
    _exit(100);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "no status";
  return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                             : "exit code " + std::to_string(WEXITSTATUS(status));
}

/// Returns whether the call throws InvalidState, as calls in a child do for what belongs to its parent.
template <class Call>
bool is_refused(const Call& call) {
  try {
    call();
  } catch (const InvalidState&) {
    return true;
  }
  return false;
}

}  // namespace mx::test
