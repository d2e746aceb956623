// fork() for tests whose process has other threads.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mx::test {

/// Returns when every other thread of the process sleeps. A child inherits locks in whatever state they are.
/// The C library puts its own right, and the engine needs none there; but oneTBB's destructors, and the
/// allocators and thread lists of sanitizers, may wait for ever for a lock that another thread had at the
/// fork (a thread that has just been started, for one).
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
