// Processes of carriers.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/channel.h"
#include "mxrun/launchers/carrier_output.h"
#include "mxrun/launchers/carriers.h"
#include "mxrun/launchers/open_files.h"
#include "mxrun/launchers/write_signals.h"

namespace mx::launch {
namespace {

/// A descriptor that is closed at the end of its scope.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() { reset(); }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

std::pair<OwnedFd, OwnedFd> carrier_pipe() {
  int ends[2];
  MX_CHECK(pipe2(ends, O_CLOEXEC) == 0, CommunicationError,
           "[mxrun] a carrier's pipe: ", std::strerror(errno));
  return {OwnedFd(ends[0]), OwnedFd(ends[1])};
}

/// Runs in the child between fork and exec: only calls that are safe there.
[[noreturn]] void become_carrier(char* const* argv, int input, int out, int err, int failure, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // the parent ended before the line above
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  restore_write_signals();
  restore_open_files();
  dup2(input, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvp(argv[0], argv);
  const int error = errno;
  const ssize_t written = write(failure, &error, sizeof error);
  _exit(written == sizeof error ? 127 : 126);
}

class CarrierSession final : public Session {
 public:
  ~CarrierSession() override {
    for (const Carrier& carrier : carriers_) {
      // The launcher has reaped a carrier that ended by itself; its number may be another process's by now.
      if (waitpid(carrier.pid, nullptr, WNOHANG) != 0) continue;
      kill(-carrier.pid, SIGKILL);
      kill(carrier.pid, SIGKILL);
      while (waitpid(carrier.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }

  const std::vector<Carrier>& carriers() const override { return carriers_; }
  std::unique_ptr<Channel> take_channel(int) override { return nullptr; }
  bool has_output() const override { return output_.pending(); }
  bool reader_gone(bool of_error) const override { return output_.reader_gone(of_error); }
  int reader_gone_fd() const override { return output_.reader_gone_fd(); }
  /// Prints what the carriers write from now on.
  void print() { output_.start(); }

  void start(const CarrierCommand& command, const std::string& input) {
    std::vector<char*> argv;
    for (const std::string& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    auto [input_read, input_write] = carrier_pipe();
    auto [failure_read, failure_write] = carrier_pipe();
    auto [out_read, out_write] = carrier_pipe();
    auto [err_read, err_write] = carrier_pipe();
    for (const OwnedFd* end : {&out_read, &err_read}) fcntl(end->get(), F_SETFL, O_NONBLOCK);
    // A pipe holds 64 KiB at first, and this input is a line: the write cannot wait for the reader.
    MX_CHECK(input.size() <= 4096, InvalidArgument, "[mxrun] expected at most 4096 bytes for a carrier");
    const ssize_t written = write(input_write.get(), input.data(), input.size());
    MX_CHECK(written == static_cast<ssize_t>(input.size()), CommunicationError, "[mxrun] ", command.name,
             ": cannot write to its pipe");
    const pid_t self = getpid(), pid = fork();
    MX_CHECK(pid >= 0, CommunicationError, "[mxrun] ", command.name, ": ", std::strerror(errno));
    if (pid == 0)
      become_carrier(argv.data(), input_read.get(), out_write.get(), err_write.get(), failure_write.get(),
                     self);
    output_.add(out_read.release(), err_read.release());
    carriers_.push_back({pid, command.name, command.nodes});
    failure_write.reset();
    int error = 0;
    ssize_t got;
    while ((got = read(failure_read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
    }
    MX_CHECK(got == 0, CommunicationError, "[mxrun] ", command.name, ": ", command.argv[0],
             " cannot be started: ", std::strerror(error));
    // Kept open, so that a carrier and the agents below it see an end of input when this process ends.
    inputs_.push_back(std::move(input_write));
  }

 private:
  std::vector<Carrier> carriers_;
  std::vector<OwnedFd> inputs_;
  CarrierOutput output_;
};

}  // namespace

std::unique_ptr<Session> start_carriers(const std::vector<CarrierCommand>& commands,
                                        const std::string& input) {
  auto session = std::make_unique<CarrierSession>();
  for (const CarrierCommand& command : commands) session->start(command, input);
  session->print();
  return session;
}

}  // namespace mx::launch
