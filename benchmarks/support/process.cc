#include "benchmarks/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "benchmarks/support/clock.h"

namespace mx::bench {
namespace {

[[noreturn]] void exec_confined(const std::vector<std::string>& argv, const std::vector<int>& cpus,
                                const std::vector<std::string>& environment, int out) {
  pin_to(cpus);
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, /*overwrite=*/0);
  }
  dup2(out, STDOUT_FILENO);
  std::vector<char*> raw;
  for (const std::string& arg : argv) raw.push_back(const_cast<char*>(arg.c_str()));
  raw.push_back(nullptr);
  execv(raw[0], raw.data());
  std::fprintf(stderr, "%s: %s\n", raw[0], std::strerror(errno));
  _exit(126);
}

// Reads until the other end closes; returns false at the deadline.
bool read_all(int fd, int64_t deadline_ns, std::string& out, int64_t& first_ns) {
  char buffer[4096];
  for (;;) {
    const int64_t left_ms = (deadline_ns - now_ns()) / 1'000'000;
    pollfd entry{fd, POLLIN, 0};
    if (left_ms <= 0 || poll(&entry, 1, static_cast<int>(left_ms)) == 0) return false;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n == 0) return true;
    if (n < 0 && errno != EINTR) return true;
    if (n > 0 && out.empty()) first_ns = now_ns();
    if (n > 0) out.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void pin_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

ChildResult run_child(const std::vector<std::string>& argv, const std::vector<int>& cpus, int timeout_s,
                      const std::vector<std::string>& environment) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) exec_confined(argv, cpus, environment, fds[1]);
  // The clock starts after fork(), because copying this process's page tables is not part of the child's
  // time.
  const int64_t start_ns = now_ns();
  close(fds[1]);
  ChildResult result;
  int64_t first_ns = start_ns;
  result.timed_out =
      !read_all(fds[0], start_ns + int64_t{timeout_s} * 1'000'000'000, result.output, first_ns);
  result.first_output_ns = first_ns - start_ns;
  close(fds[0]);
  if (result.timed_out) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string self_path() {
  char buffer[4096];
  const ssize_t n = readlink("/proc/self/exe", buffer, sizeof buffer);
  if (n <= 0) throw std::runtime_error("cannot read /proc/self/exe");
  return {buffer, static_cast<size_t>(n)};
}

Memory process_memory() {
  Memory memory;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return memory;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, "VmRSS:", 6) == 0) memory.resident_bytes = std::atof(line + 6) * 1024;
    if (std::strncmp(line, "VmHWM:", 6) == 0) memory.peak_bytes = std::atof(line + 6) * 1024;
  }
  std::fclose(file);
  return memory;
}

double process_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace mx::bench
