#include "mxrun/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/deadline.h"

namespace mx::launch {
namespace {

// Returns the parent of a process; 0 if the process is gone or is a zombie, which needs no signal.
pid_t parent_of(const char* pid) {
  const std::string path = std::string("/proc/") + pid + "/stat";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t size = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  // "pid (name) state parent ...": the name may contain anything, so the last parenthesis counts.
  const char* end = std::strrchr(text, ')');
  char state = 0;
  int parent = 0;
  if (end == nullptr || std::sscanf(end + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

// Returns the ids of all processes below this one.
std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return {};
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const pid_t parent = parent_of(entry->d_name);
    if (parent > 0) children.emplace(parent, static_cast<pid_t>(std::atoi(entry->d_name)));
  }
  closedir(folder);
  std::vector<pid_t> found, open{getpid()};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      found.push_back(child->second);
      open.push_back(child->second);
    }
  }
  return found;
}

}  // namespace

bool kill_descendants(int limit_ms, const std::function<void(pid_t, int)>& reaped) {
  const comm::Deadline deadline = comm::Deadline::after_ms(limit_ms);
  for (;;) {
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) reaped(pid, status);
    // Without children there are no descendants: orphans from below become children of a subreaper.
    if (pid < 0 && errno == ECHILD) return true;
    const std::vector<pid_t> left = descendants();
    if (left.empty()) return true;
    // A process that forks while the list is read can have a child that is missing in it; the next round
    // finds that child.
    for (const pid_t process : left) kill(process, SIGKILL);
    if (deadline.passed()) return false;
    const timespec pause{0, 500'000};
    nanosleep(&pause, nullptr);
  }
}

void become_subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

int open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // always close-on-exec
#else
  (void)pid;
  return -1;
#endif
}

}  // namespace mx::launch
