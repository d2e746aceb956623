#include "mxrun/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "mxrun/descendants.h"
#include "mxrun/exit_codes.h"
#include "mxrun/launchers/open_files.h"
#include "mxrun/launchers/write_signals.h"

namespace mx::launch {
namespace {

// What the child does between fork() and exec(). Other threads may have held locks at the fork, so the child
// allocates nothing and calls only functions that are safe in signal handlers.
struct ChildSteps {
  const char* path;
  char* const* argv;
  char* const* environment;
  const char* folder;
  pid_t parent;
  bool keep_stdin;
  const cpu_set_t* cpus;
  size_t cpus_bytes;
  int out, err, secret, secret_as, failure;

  [[noreturn]] void run() const {
    setpgid(0, 0);
    // The kernel kills this process when the agent ends, however the agent ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent) _exit(127);
    if (!keep_stdin) {
      const int empty = open("/dev/null", O_RDONLY);
      if (empty >= 0) dup2(empty, 0);
      if (empty > 2) close(empty);
    }
    dup2(out, 1);
    dup2(err, 2);
    // Everything else closes at exec(), also what mxrun itself inherited.
#ifdef SYS_close_range
    syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
#endif
    if (secret >= 0) {
      // dup2() of a descriptor to itself would keep it close-on-exec.
      if (secret == secret_as) {
        fcntl(secret, F_SETFD, 0);
      } else {
        dup2(secret, secret_as);
      }
    }
    if (cpus != nullptr) sched_setaffinity(0, cpus_bytes, cpus);
    if (*folder != '\0' && chdir(folder) != 0) fail('d');
    restore_write_signals();
    restore_open_files();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(path, argv, environment);
    fail('x');
  }

  [[noreturn]] void fail(char step) const {
    const int number = errno;
    char message[1 + sizeof(number)];
    message[0] = step;
    std::memcpy(message + 1, &number, sizeof(number));
    if (write(failure, message, sizeof(message)) < 0) _exit(126);
    _exit(127);
  }
};

// A pipe whose ends are closed with it, also when the next pipe cannot be made.
class Pipe {
 public:
  Pipe() { make_pipe(ends_); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int operator[](int end) const { return ends_[end]; }
  void close_end(int end) {
    if (ends_[end] >= 0) close(std::exchange(ends_[end], -1));
  }
  int release(int end) { return std::exchange(ends_[end], -1); }

 private:
  int ends_[2];
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Returns whether exec() or chdir() may succeed another time, because the system was short of something.
bool may_pass(int number) {
  return number == EAGAIN || number == ENOMEM || number == EMFILE || number == ENFILE || number == EIO ||
         number == ETXTBSY;
}

// Explains why exec() or chdir() failed.
void explain(const SpawnRequest& request, char step, int number, Spawned* result) {
  result->lasting = !may_pass(number);
  result->exit_code = number == ENOENT || number == ENOTDIR ? kExitNotFound : kExitCannotExecute;
  if (step == 'd') {
    result->exit_code = kExitCannotExecute;
    result->problem =
        mx::detail::concat("cannot enter the working folder ", request.folder, ": ", strerror(number),
                           "; start mxrun in a folder that exists on every node");
  } else if (number == ENOENT) {
    result->problem = mx::detail::concat(
        request.path, ": it, or the interpreter that it names, was not found; check the path");
  } else if (number == ENOEXEC) {
    result->problem = mx::detail::concat(
        request.path, " is no program for this machine; a script needs a first line such as #!/bin/sh");
  } else {
    result->problem = mx::detail::concat("cannot execute ", request.path, ": ", strerror(number));
  }
}

}  // namespace

void make_pipe(int ends[2]) {
  MX_CHECK(pipe2(ends, O_CLOEXEC) == 0, OutOfMemory, "[mxrun] expected a pipe, got: ", strerror(errno),
           "; raise the limit of open files (ulimit -n)");
}

FoundProgram find_program(const std::string& name, const char* path_variable, const std::string& folder) {
  FoundProgram denied;
  const auto look_at = [&](const std::string& path) {
    const std::string full = path.empty() || path[0] == '/' || folder.empty() ? path : folder + "/" + path;
    struct stat info {};
    if (stat(full.c_str(), &info) != 0) return false;
    if (S_ISDIR(info.st_mode)) {
      denied = {"", kExitCannotExecute, full + " is a folder; name a program"};
    } else if (access(full.c_str(), X_OK) != 0) {
      denied = {"", kExitCannotExecute, full + " is not executable; try: chmod +x " + path};
    } else {
      return true;
    }
    return false;
  };
  if (name.find('/') != std::string::npos) {
    if (look_at(name)) return {name, 0, ""};
    if (denied.exit_code != 0) return denied;
    return {"", kExitNotFound, name + " was not found; check the path"};
  }
  const std::string path = path_variable != nullptr ? path_variable : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string part = end == begin ? "." : path.substr(begin, end - begin);
    const std::string candidate = part + "/" + name;
    if (look_at(candidate)) return {candidate, 0, ""};
    begin = end + 1;
  }
  struct stat here {};
  if (stat((folder.empty() ? name : folder + "/" + name).c_str(), &here) == 0 && S_ISREG(here.st_mode)) {
    return {"", kExitNotFound, name + " was not found in PATH; it is in this folder, so try: ./" + name};
  }
  // A folder of that name on the path is no program, and no reason to say so.
  if (denied.exit_code != 0 && denied.problem.find("is a folder") == std::string::npos) return denied;
  return {"", kExitNotFound, name + " was not found in PATH; check its name"};
}

Spawned spawn(const SpawnRequest& request) {
  Spawned result;
  Pipe out, err, failure;
  std::optional<Pipe> secret;
  if (request.secret_fd >= 0) {
    secret.emplace();
    // A secret is much shorter than a pipe's buffer, so the write does not block.
    if (write((*secret)[1], request.secret.data(), request.secret.size()) < 0) {
      result.exit_code = kExitCannotExecute;
      result.problem = "its secret cannot be written to a pipe: " + std::string(std::strerror(errno));
      return result;
    }
    secret->close_end(1);
  }
  const std::vector<char*> argv = pointers(request.argv), environment = pointers(request.environment);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : request.cpus) {
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);
  }
  const ChildSteps steps{request.path.c_str(),
                         argv.data(),
                         environment.data(),
                         request.folder.c_str(),
                         getpid(),
                         request.keep_stdin,
                         request.cpus.empty() ? nullptr : &cpus,
                         sizeof(cpus),
                         out[1],
                         err[1],
                         secret.has_value() ? (*secret)[0] : -1,
                         request.secret_fd,
                         failure[1]};
  const pid_t pid = fork();
  if (pid == 0) steps.run();
  const int fork_error = errno;
  for (Pipe* pipe : {&out, &err, &failure}) pipe->close_end(1);
  secret.reset();
  if (pid < 0) {
    result.exit_code = kExitCannotExecute;
    result.problem = mx::detail::concat("cannot start a process: ", strerror(fork_error));
    return result;
  }
  setpgid(pid, pid);  // also here, so that a signal to the group right after this call finds it
  char message[1 + sizeof(int)];
  ssize_t got = 0;
  do {
    got = read(failure[0], message, sizeof(message));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(message)) {
    int number = 0;
    std::memcpy(&number, message + 1, sizeof(number));
    explain(request, message[0], number, &result);
    waitpid(pid, nullptr, 0);
    return result;
  }
  result.pid = pid;
  result.pidfd = open_pidfd(pid);
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  fcntl(err[0], F_SETFL, O_NONBLOCK);
  result.out_fd = out.release(0);
  result.err_fd = err.release(0);
  return result;
}

}  // namespace mx::launch
