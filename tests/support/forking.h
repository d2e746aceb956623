// fork() for tests whose process has other threads.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

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

}  // namespace mx::test
