#include "mxrun/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "comm/host_name.h"
#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "engine/base/error.h"
#include "mxrun/binding.h"
#include "mxrun/descendants.h"
#include "mxrun/environment.h"
#include "mxrun/exit_codes.h"
#include "mxrun/guardian.h"
#include "mxrun/hosts/text.h"
#include "mxrun/launchers/open_files.h"
#include "mxrun/launchers/write_signals.h"
#include "mxrun/messages.h"
#include "mxrun/output.h"
#include "mxrun/plan.h"
#include "mxrun/process.h"

namespace mx::launch {
namespace {

using comm::Deadline;
using nlohmann::json;

constexpr int kSecretFd = 3;

// What one stream may print before the others and the messages are looked at again.
constexpr size_t kReadAtOnce = 256 << 10;
// Bytes that a pipe holds at most.
constexpr size_t kLongestPipe = 1 << 20;
// How long a sweep may keep the agent from its messages.
constexpr int kSweepSliceMs = 50;
// How long the agent waits for events when no signal is due.
constexpr int64_t kIdleMs = 10000;

struct RankProcess {
  RankPlan plan;
  pid_t pid = -1;
  int pidfd = -1;
  bool running = false;
  std::unique_ptr<RankStream> out, err;
};

// A signal that is due at some time.
struct DueSignal {
  Deadline at;
  int number;
  bool servers_only;
};

class Agent {
 public:
  Agent(const AgentOptions& options, int guardian_fd)
      : options_(options), guardian_fd_(guardian_fd), out_(STDOUT_FILENO), err_(STDERR_FILENO) {}

  int run() {
    setpgid(0, 0);
    become_subreaper();
    ignore_write_signals();
    signal(SIGCHLD, SIG_DFL);  // ignored, children would vanish without a status
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
      if (!is_ignored(number)) sigaddset(&signals, number);
    }
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    MX_CHECK(signal_fd_ >= 0 && exits_fd_ >= 0, OutOfMemory,
             "[mxrun] expected descriptors for signals and events, got: ", strerror(errno));
    own_cpus_ = cpus_of_this_process();
    channel_ = options_.connect();
    say({{"op", "hello"}, {"host", comm::host_name()}, {"pid", getpid()}});
    while (!finished_) step();
    channel_.reset();
    return 0;
  }

 private:
  void say(const json& message) {
    channel_->send(message.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  // Where standard output and error are one file, a long line is not cut by the other one.
  bool may_write(const Outlet& outlet) const {
    const Outlet& other = &outlet == &out_ ? err_ : out_;
    return !outlet.empty() && !(other.within_line() && other.shares_file_with(outlet));
  }

  // Writes to standard output and error if they have room. Where both are one pipe, a write to one may take
  // the room of the other, and this thread must not wait for a reader; so they take turns.
  void write_output(const std::vector<pollfd>& watched) {
    Outlet* const first = turn_of_err_ ? &err_ : &out_;
    Outlet* const second = turn_of_err_ ? &out_ : &err_;
    for (Outlet* outlet : {first, second}) {
      const bool has_room = std::any_of(watched.begin(), watched.end(), [outlet](const pollfd& entry) {
        return entry.fd == outlet->fd() && entry.revents != 0;
      });
      if (!has_room || !may_write(*outlet)) continue;
      outlet->write_some();
      turn_of_err_ = outlet == &out_;
      if (out_.shares_file_with(err_)) return;
    }
  }

  // Waits for something to happen, and handles everything that has.
  void step() {
    std::vector<pollfd> watched{
        {signal_fd_, POLLIN, 0}, {channel_->readable_fd(), POLLIN, 0}, {guardian_fd_, POLLIN, 0}};
    for (Outlet* outlet : {&out_, &err_}) {
      if (may_write(*outlet)) watched.push_back({outlet->fd(), POLLOUT, 0});
    }
    for (const RankProcess& process : processes_) {
      for (const RankStream* stream : {process.out.get(), process.err.get()}) {
        if (stream != nullptr && stream->wants()) watched.push_back({stream->fd(), POLLIN, 0});
      }
    }
    const bool at_work = sweep_until_.has_value() || (ending_ && out_.empty() && err_.empty());
    int64_t wait_ms = at_work ? 0 : kIdleMs;
    for (const DueSignal& due : due_) wait_ms = std::min(wait_ms, due.at.left_ms());
    poll(watched.data(), watched.size(), static_cast<int>(wait_ms));

    if (watched[2].revents != 0) abandon();  // the guardian has been killed
    write_output(watched);
    for (RankProcess& process : processes_) {
      for (RankStream* stream : {process.out.get(), process.err.get()}) {
        if (stream != nullptr && stream->wants()) stream->read_some(kReadAtOnce);
      }
    }
    take_signals();
    reap();
    take_messages();
    send_due_signals();
    if (sweep_until_.has_value() && !ending_) sweep();
    if (ending_) finish_group();
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      // Somebody, such as scancel, ends the agent itself.
      if (asked_to_end_) {
        kill_everything();
      } else {
        asked_to_end_ = true;
        say({{"op", "asked_to_end"}, {"signal", info.ssi_signo}});
        stop(SIGTERM, plan_.grace_ms, false);
      }
    }
  }

  void take_messages() {
    for (std::string text; !finished_ && channel_->receive(&text);) handle(message_to_agent(text));
    if (!finished_ && channel_->closed()) abandon();
  }

  void handle(ToAgent message) {
    using Op = ToAgent::Op;
    switch (message.op) {
      case Op::run:
        try {
          start_group(std::move(message.plan));
        } catch (const Error& error) {
          refuse_group(error);
        }
        return;
      case Op::signal:
        return signal_groups(message.signal, false);
      case Op::stop:
        return stop(message.signal, message.grace_ms, message.servers_only);
      case Op::kill:
        return kill_everything();
      case Op::kill_process:
        for (const RankProcess& process : processes_) {
          const bool meant = process.plan.role == message.role && process.plan.rank == message.rank;
          if (meant && process.running) kill(-process.pid, SIGKILL);
        }
        return;
      case Op::reader_gone:
        return (message.of_error ? err_ : out_).give_up();
      case Op::ping:
        return say({{"op", "pong"}});
      case Op::bye:
        finished_ = true;
        return;
    }
  }

  // The launcher or the guardian is gone, so the job is over: nobody would learn how it goes on.
  [[noreturn]] void abandon() {
    kill_descendants(kSweepMs, [](pid_t, int) {});
    _exit(1);
  }

  void start_group(NodePlan plan) {
    plan_ = std::move(plan);
    if (plan_.secret.empty()) plan_.secret = options_.secret;
    processes_.clear();
    due_.clear();
    ending_ = swept_ = false;
    sweep_until_.reset();
    processes_.reserve(plan_.ranks.size());
    check_open_files(files_of_agent(plan_.ranks.size()), "the agent of this node");
    if (!plan_.output.log_dir.empty()) mkdir(plan_.output.log_dir.c_str(), 0777);
    const int cpus = usable_cpus();
    // Sharing fewer processors than cores (a quota) is left to the kernel.
    std::vector<std::vector<int>> shares;
    if (plan_.bind && plan_.local_workers > 1 && own_cpus_ >= plan_.local_workers) {
      shares = share_cores(usable_cores(), plan_.local_workers);
    }
    const char* path_variable = getenv("PATH");
    for (const auto& [name, value] : plan_.environment) {
      if (name == "PATH") path_variable = value.c_str();
    }
    const FoundProgram program = find_program(plan_.argv[0], path_variable, plan_.folder);
    for (const RankPlan& rank : plan_.ranks) {
      processes_.push_back(RankProcess{rank, -1, -1, false, nullptr, nullptr});
      if (!start(&processes_.back(), program, shares, cpus)) break;
    }
    active_ = true;
    ending_ = none_runs();
  }

  // Reports an error of this node as the failure of the process that was to be started. If the agent ended
  // instead, mxrun would take the node for lost.
  void refuse_group(const Error& error) {
    RankPlan rank;
    rank.rank = -1;  // the node as a whole
    if (!processes_.empty()) {
      rank = processes_.back().plan;
    } else if (!plan_.ranks.empty()) {
      rank = plan_.ranks[0];
    }
    const bool lasting = dynamic_cast<const InvalidArgument*>(&error) != nullptr;
    say_failed(rank, kExitConfiguration, error.what(), lasting);
    active_ = true;
    ending_ = none_runs();
  }

  bool none_runs() const {
    return std::none_of(processes_.begin(), processes_.end(),
                        [](const RankProcess& process) { return process.running; });
  }

  bool start(RankProcess* process, const FoundProgram& program, const std::vector<std::vector<int>>& shares,
             int cpus) {
    const RankPlan& rank = process->plan;
    Spawned spawned;
    spawned.exit_code = program.exit_code;
    spawned.problem = program.problem;
    spawned.lasting = program.exit_code != 0;
    if (program.exit_code == 0) {
      SpawnRequest request;
      request.path = program.path;
      request.argv = plan_.argv;
      request.folder = plan_.folder;
      request.keep_stdin = options_.forward_stdin && rank.role == Role::worker && rank.rank == 0;
      int threads = threads_per_worker(cpus, plan_.local_workers);
      if (rank.role == Role::worker && !shares.empty()) {
        request.cpus = shares.at(static_cast<size_t>(rank.local_rank));
        threads = static_cast<int>(request.cpus.size());
      }
      // Before the process runs, because without a place for its output it must not.
      try {
        process->out = std::make_unique<RankStream>(-1, &out_, settings(rank, false));
        process->err = std::make_unique<RankStream>(-1, &err_, settings(rank, true));
      } catch (const InvalidArgument& error) {
        say_failed(rank, kExitConfiguration, error.what(), true);
        return false;
      }
      request.secret = plan_.secret;
      request.secret_fd = plan_.secret.empty() ? -1 : kSecretFd;
      request.environment = rank_environment(plan_, rank, threads, request.secret_fd);
      spawned = spawn(request);
    }
    if (spawned.pid < 0) {
      say_failed(rank, spawned.exit_code, spawned.problem, spawned.lasting);
      return false;
    }
    process->out->attach(spawned.out_fd);
    process->err->attach(spawned.err_fd);
    process->pid = spawned.pid;
    process->pidfd = spawned.pidfd;
    process->running = true;
    if (process->pidfd >= 0) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = static_cast<uint64_t>(spawned.pid);
      epoll_ctl(exits_fd_, EPOLL_CTL_ADD, process->pidfd, &event);
    }
    say({{"op", "started"},
         {"role", static_cast<int>(rank.role)},
         {"rank", rank.rank},
         {"pid", spawned.pid}});
    return true;
  }

  void say_failed(const RankPlan& rank, int code, std::string_view problem, bool lasting) {
    say({{"op", "failed"},
         {"role", static_cast<int>(rank.role)},
         {"rank", rank.rank},
         {"code", code},
         {"problem", text::without_place(problem)},
         {"lasting", lasting}});
  }

  RankStream::Settings settings(const RankPlan& rank, bool is_stderr) const {
    const OutputPlan& output = plan_.output;
    const bool server = rank.role == Role::server;
    RankStream::Settings result;
    result.tag = output.tag;
    result.timestamp = output.timestamp;
    result.tee = output.tee;
    result.keep_tail = is_stderr;
    result.alone = plan_.workers + plan_.servers == 1 || output.shown.size() == 1;
    result.shown = output.shown.empty() || (!server && std::find(output.shown.begin(), output.shown.end(),
                                                                 rank.rank) != output.shown.end());
    result.label = std::to_string(plan_.node) + ":" + (server ? "server" : "") + std::to_string(rank.rank);
    if (!output.log_dir.empty()) {
      result.log_path = output.log_dir + "/" + (server ? "server" : "rank") + std::to_string(rank.rank) +
                        (plan_.epoch > 0 ? ".restart" + std::to_string(plan_.epoch) : "") +
                        (is_stderr ? ".err" : ".out");
    }
    return result;
  }

  void reap() {
    int status = 0;
    // waitpid(-1) returns children in the order of their start; epoll knows the order of their ends, which
    // tells the first failure from its consequences.
    epoll_event events[64];
    const int count = epoll_wait(exits_fd_, events, 64, 0);
    for (int i = 0; i < count; ++i) {
      const auto pid = static_cast<pid_t>(events[i].data.u64);
      if (waitpid(pid, &status, WNOHANG) == pid) reaped(pid, status);
    }
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) reaped(pid, status);
  }

  void reaped(pid_t pid, int status) {
    for (RankProcess& process : processes_) {
      if (process.pid != pid || !process.running) continue;
      process.running = false;
      if (process.pidfd >= 0) close(std::exchange(process.pidfd, -1));
      // What the process wrote before its end.
      for (RankStream* stream : {process.err.get(), process.out.get()}) {
        if (stream != nullptr) stream->read_some(kLongestPipe);
      }
      say({{"op", "exited"},
           {"role", static_cast<int>(process.plan.role)},
           {"rank", process.plan.rank},
           {"code", exit_code_of(status)},
           {"signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0},
           {"tail", process.err != nullptr ? process.err->tail() : std::vector<std::string>{}}});
    }
    ending_ = active_ && none_runs();
  }

  // After the last process has ended: ends what they have left behind and prints what they have written.
  void finish_group() {
    for (const RankProcess& process : processes_) {
      if (process.running) return;
    }
    if (!swept_) swept_ = sweep();
    if (!swept_) return;
    bool open = false;
    for (RankProcess& process : processes_) {
      for (RankStream* stream : {process.out.get(), process.err.get()}) {
        if (stream == nullptr || !stream->open()) continue;
        // A process outside of the job may hold the other end, so the end of the stream may never come:
        // what can be read now is all.
        if (stream->wants() && !stream->read_some(kReadAtOnce)) stream->finish();
        open = open || stream->open();
      }
    }
    if (open || !out_.empty() || !err_.empty()) return;
    processes_.clear();
    due_.clear();
    active_ = ending_ = swept_ = false;
    say({{"op", "ended"}, {"left", left_}});
  }

  void stop(int first, int64_t grace_ms, bool servers_only) {
    due_.clear();
    signal_groups(first, servers_only);
    if (first == SIGINT) {
      due_.push_back({Deadline::after_ms(grace_ms / 2), SIGTERM, servers_only});
    }
    due_.push_back({Deadline::after_ms(grace_ms), SIGKILL, servers_only});
  }

  void send_due_signals() {
    for (size_t i = 0; i < due_.size();) {
      if (!due_[i].at.passed()) {
        ++i;
        continue;
      }
      const DueSignal due = due_[i];
      due_.erase(due_.begin() + static_cast<ptrdiff_t>(i));
      if (due.number == SIGKILL && !due.servers_only) {
        kill_everything();
      } else {
        signal_groups(due.number, due.servers_only);
      }
    }
  }

  // The leader of a group is not reaped before its exit is seen here, so its number belongs to nobody else.
  void signal_groups(int number, bool servers_only) {
    for (const RankProcess& process : processes_) {
      if (!process.running || (servers_only && process.plan.role != Role::server)) continue;
      kill(-process.pid, number);
      // A stopped process takes SIGTERM only after it continues.
      if (number == SIGTERM || number == SIGINT) kill(-process.pid, SIGCONT);
    }
  }

  void kill_everything() { sweep(); }

  // Kills everything below this process. Processes can take long to be gone, and the launcher would take an
  // agent that does not answer for lost. So a call takes kSweepSliceMs at most, and step() makes the next
  // one. Returns true when the sweep is over: nothing is left, or its time has passed.
  bool sweep() {
    if (!sweep_until_.has_value()) sweep_until_ = Deadline::after_ms(kSweepMs);
    left_ = !kill_descendants(kSweepSliceMs, [this](pid_t pid, int status) { reaped(pid, status); });
    if (left_ && !sweep_until_->passed()) return false;
    sweep_until_.reset();
    return true;
  }

  const AgentOptions& options_;
  const int guardian_fd_;
  Outlet out_, err_;
  bool turn_of_err_ = false;  ///< err_ may write first
  int signal_fd_ = -1;
  const int exits_fd_ = epoll_create1(EPOLL_CLOEXEC);  ///< the pidfds of the running processes
  std::unique_ptr<Channel> channel_;
  int own_cpus_ = 1;  ///< regardless of MX_NUM_THREADS, which says nothing about binding
  NodePlan plan_;
  std::vector<RankProcess> processes_;
  std::vector<DueSignal> due_;
  bool active_ = false;                  ///< between "run" and "ended"
  bool ending_ = false;                  ///< the last process has ended
  std::optional<Deadline> sweep_until_;  ///< a sweep is going on, until then at most
  bool swept_ = false;  ///< nothing runs after the last process any more, except what is left_
  bool left_ = false;   ///< the last sweep has not ended everything
  bool asked_to_end_ = false;
  bool finished_ = false;
};

}  // namespace

int run_agent(const AgentOptions& options) {
  return guard(options.channel_fd, [&options](int guardian_fd) {
    try {
      return Agent(options, guardian_fd).run();
    } catch (const std::exception& error) {
      const std::string text = std::string("mxrun: the agent of this node ends: ") + error.what() + "\n";
      if (write(STDERR_FILENO, text.data(), text.size()) < 0) return 1;
      kill_descendants(kSweepMs, [](pid_t, int) {});
      return dynamic_cast<const AuthenticationError*>(&error) != nullptr ? kExitAuthentication
                                                                         : kExitRendezvous;
    }
  });
}

}  // namespace mx::launch
