#include "mxrun/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "mxrun/agent.h"
#include "mxrun/descendants.h"
#include "mxrun/exit_codes.h"
#include "mxrun/job_rendezvous.h"
#include "mxrun/launchers/open_files.h"
#include "mxrun/launchers/rendezvous_channel.h"
#include "mxrun/launchers/select.h"
#include "mxrun/launchers/write_signals.h"
#include "mxrun/planning.h"
#include "mxrun/process.h"
#include "mxrun/report.h"
#include "mxrun/supervisor_class.h"
#include "mxrun/supervisor_parts.h"

namespace mx::launch {

using comm::Deadline;

namespace {

// How long the agents may take to end after a timeout or an interrupt, before they are killed.
constexpr int64_t kHurriedMs = 500;

}  // namespace

void Supervisor::set_up_signals() {
  // A shell that ends with `exec mxrun` leaves its children to this process; they are no part of the job.
  sweep_ = waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
  become_subreaper();
  ignore_write_signals();
  signal(SIGCHLD, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
    if (!is_ignored(number)) sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  MX_CHECK(signal_fd_ >= 0, OutOfMemory, "[mxrun] expected a descriptor for signals, got: ", strerror(errno));
}

void Supervisor::start_agents() {
  // An agent on this machine has the same limit, and its message would be one of several.
  if (!launcher_.remote())
    check_open_files(files_of_agent(job_.nodes[0].ranks.size()), "the agent of this node");
  rendezvous_ = open_rendezvous(job_);
  const int master_port = free_port();
  for (NodePlan& plan : job_.nodes) {
    plan.rendezvous = rendezvous_->address();
    plan.master_port = master_port;
    // Plans may go to other machines in clear text. Agents there have the secret from their standard input.
    if (!launcher_.remote()) plan.secret = job_.secret;
  }
  AgentCommand command;
  command.heartbeat_ms = job_.options.heartbeat_ms;
  command.dead_after_ms = job_.options.dead_after_ms;
  command.program = launcher_.remote() ? program_on_nodes() : "/proc/self/exe";
  command.rendezvous = rendezvous_->address();
  command.job = job_.options.job;
  command.secret = job_.secret;
  command.secret_file = job_.options.secret_file;
  command.tls = job_.nodes[0].tls;
  report_.job_started(launcher_.name(), rendezvous_->address());
  session_ = launcher_.start(job_.nodes, command);
  for (const Carrier& carrier : session_->carriers()) carriers_.push_back({carrier, false, 0});
  for (size_t i = 0; i < job_.nodes.size(); ++i) {
    Node node;
    node.plan = &job_.nodes[i];
    node.host = job_.nodes[i].host;
    node.channel = session_->take_channel(static_cast<int>(i));
    if (node.channel == nullptr) {
      const ChannelPrefixes prefixes = channel_prefixes(static_cast<int>(i));
      // The table belongs to rendezvous_, which outlives the nodes.
      node.channel = std::make_unique<RendezvousChannel>(
          std::shared_ptr<comm::Rendezvous>(std::shared_ptr<void>(), rendezvous_->table()), prefixes.to_agent,
          prefixes.from_agent);
    }
    nodes_.push_back(std::move(node));
  }
}

void Supervisor::start_group() {
  started_ = true;
  number_incarnations(&job_.nodes, &next_incarnation_);
  rendezvous_->set_epoch(epoch_);
  for (Node& node : nodes_) {
    node.plan->epoch = epoch_;
    node.plan->restarts = restarts_;
    node.ended = false;
    for (const RankPlan& rank : node.plan->ranks) {
      ProcessRecord process;
      process.role = rank.role;
      process.rank = rank.rank;
      process.node = node.plan->node;
      process.epoch = epoch_;
      process.incarnation = rank.incarnation;
      processes_.push_back(process);
    }
  }
  for (Node& node : nodes_) say(&node, {{"op", "run"}, {"plan", to_json(*node.plan)}});
}

ProcessRecord* Supervisor::find(Role role, int rank) {
  for (ProcessRecord& process : processes_) {
    if (process.role == role && process.rank == rank) return &process;
  }
  return nullptr;
}

bool Supervisor::workers_succeeded() const {
  return started_ && std::all_of(processes_.begin(), processes_.end(), [](const ProcessRecord& process) {
           return process.role == Role::server || (process.ended && process.code == 0);
         });
}

// The workers that had ended without failure when the first failure came. If the others still communicated
// with one of them, their failures follow from its end, but only their own messages would say so.
std::vector<std::string> Supervisor::early_ends() const {
  std::vector<std::string> names;
  for (const ProcessRecord& process : processes_) {
    if (process.role != Role::worker || !process.ended || process.code != 0) continue;
    if (process.finished > failed_at_ && ended_well_ != std::pair{process.role, process.rank}) continue;
    names.push_back(process_name(process.role, process.rank) + " on " +
                    nodes_[static_cast<size_t>(process.node)].host);
  }
  return names;
}

bool Supervisor::group_over() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.gone || node.ended; });
}

void Supervisor::step() {
  std::vector<pollfd> watched{{signal_fd_, POLLIN, 0},
                              {rendezvous_->lost_fd(), POLLIN, 0},
                              {status_socket_.fd(), POLLIN, 0},
                              {session_->reader_gone_fd(), POLLIN, 0}};
  for (const Node& node : nodes_) {
    if (node.channel != nullptr && !node.gone) watched.push_back({node.channel->readable_fd(), POLLIN, 0});
  }
  Deadline next = ping_at_;
  if (!started_) next = earlier(next, start_deadline_);
  if (stop_at_.has_value()) next = earlier(next, *stop_at_);
  if (give_up_at_.has_value()) next = earlier(next, *give_up_at_);
  for (const Node& node : nodes_) {
    if (node.gone_at.has_value() && !node.gone) next = earlier(next, *node.gone_at);
  }
  if (cause_.decide_at().has_value()) next = earlier(next, *cause_.decide_at());
  const int64_t wait_ms = std::min<int64_t>(next.left_ms(), 1000);
  poll(watched.data(), watched.size(), static_cast<int>(wait_ms));
  if (watched[2].revents != 0) status_socket_.answer([this] { return status(); });
  take_signals();
  check_carriers();
  check_readers();
  for (Node& node : nodes_) take_messages(&node);
  check_cause();
  excuse_silence(wait_ms);
  check_times();
  if (!started_ && interrupted_ == 0 && !failure_.has_value() &&
      std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.ready; })) {
    start_group();
  }
}

void Supervisor::end_agents() {
  say_all({{"op", "bye"}});
  const Deadline deadline = Deadline::after_ms(timed_out_ || interrupted_ != 0 ? kHurriedMs : kAgentMs);
  const auto running = [this] {
    return std::any_of(carriers_.begin(), carriers_.end(), [this](const CarrierState& state) {
      // The carrier of a lost agent may never end by itself.
      return !state.ended &&
             std::any_of(state.carrier.nodes.begin(), state.carrier.nodes.end(), [this](int node) {
               const Node& at = nodes_[static_cast<size_t>(node)];
               return !at.gone || at.channel == nullptr || at.channel->closed();
             });
    });
  };
  bool asked = false;  // by a signal to end
  const auto wait_for_signal = [&](int64_t most_ms) {
    pollfd watched{signal_fd_, POLLIN, 0};
    poll(&watched, 1, static_cast<int>(most_ms));
    signalfd_siginfo info{};
    while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) asked = asked || info.ssi_signo != SIGCHLD;
  };
  while (running() && !deadline.passed()) {
    wait_for_signal(std::min<int64_t>(deadline.left_ms(), 50));
    check_carriers();
  }
  // The reader of mxrun's output may be slow. A signal ends the wait, also one that came while agents ended.
  const bool hurried = timed_out_ || interrupted_ != 0;
  while (session_ != nullptr && session_->has_output() && !asked && !(hurried && deadline.passed()))
    wait_for_signal(20);
  nodes_.clear();
  session_.reset();
  const auto reaped = [this](pid_t pid, int status) {
    for (CarrierState& state : carriers_) {
      if (state.carrier.pid == pid) {
        state.ended = true;
        state.status = status;
      }
    }
  };
  if (sweep_) {
    kill_descendants(kSweepMs, reaped);
  } else {
    for (CarrierState& state : carriers_) {
      if (!state.ended) kill(state.carrier.pid, SIGKILL);
    }
  }
}

/// Returns whether an exit code says why an agent could not begin. 126 and 127 also come from a shell that
/// does not find mxrun.
static bool is_own_code(int code) {
  return code == kExitBind || code == kExitAuthentication || code == kExitConfiguration || code == 126 ||
         code == 127;
}

int Supervisor::finish() {
  const std::vector<std::string> early = early_ends();
  end_agents();
  if (failure_.has_value() && failure_->rank < 0 && failure_->code == 0) {
    // An agent that could not begin says why with a code of mxrun. Other codes are those of ssh, srun or
    // mpirun.
    failure_->code = started_ ? 128 + SIGKILL : kExitRendezvous;
    for (const CarrierState& state : carriers_) {
      const auto& on = state.carrier.nodes;
      if (!state.ended || std::find(on.begin(), on.end(), failure_->node) == on.end()) continue;
      const int code = exit_code_of(state.status);
      if (!started_ && is_own_code(code)) failure_->code = code;
      failure_->reason += mx::detail::concat(" (", state.carrier.name, ": exit code ", code, ")");
    }
  }
  int code = 0;
  std::string result = "succeeded";
  if (timed_out_) {
    code = kExitTimeout;
    result = "timed out";
  } else if (interrupted_ != 0) {
    code = 128 + interrupted_;
    result = "interrupted";
    print_error(mx::detail::concat("mxrun: ended by ",
                                   interrupted_ == SIGINT    ? "SIGINT"
                                   : interrupted_ == SIGTERM ? "SIGTERM"
                                                             : "SIGHUP",
                                   "\n"));
    // The signal may have come because of the failure, of which the user would otherwise learn nothing.
    if (failure_.has_value()) print_error(failure_block(*failure_, early, also_failed_));
  } else if (failure_.has_value()) {
    code = failure_->code;
    result = "failed";
    print_error(failure_block(*failure_, early, also_failed_));
  }
  before_.insert(before_.end(), processes_.begin(), processes_.end());
  report_.job_ended(code, result, before_, restarts_);
  return code;
}

int Supervisor::run() {
  set_up_signals();
  start_agents();
  for (;;) {
    while (!(group_over() && !cause_.decide_at().has_value() &&
             (started_ || failure_.has_value() || interrupted_ != 0 || timed_out_)))
      step();
    const bool again = failure_.has_value() && !failure_->lasting && interrupted_ == 0 && !timed_out_ &&
                       job_.options.restart == Restart::group && restarts_ < job_.options.max_restarts &&
                       std::none_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.gone; });
    if (!again) return finish();
    ++restarts_;
    ++epoch_;
    print_error(failure_block(*failure_, early_ends(), also_failed_));
    print_error(mx::detail::concat("mxrun: restart ", restarts_, " of ", job_.options.max_restarts,
                                   ": the whole group starts again\n"));
    report_.restarting(epoch_, restarts_);
    failure_.reset();
    ended_well_.reset();
    also_failed_.clear();
    cause_.clear();
    stop_at_.reset();
    give_up_at_.reset();
    servers_told_ = false;
    before_.insert(before_.end(), processes_.begin(), processes_.end());
    processes_.clear();
    start_group();
  }
}

int run_job(Job job, Launcher& launcher) {
  try {
    return Supervisor(std::move(job), launcher).run();
  } catch (const InvalidArgument& error) {
    print_message(error.what());
    return kExitConfiguration;
  } catch (const BindFailed& error) {
    print_message(error.what());
    return kExitBind;
  } catch (const CommunicationError& error) {
    print_message(error.what());
    return kExitRendezvous;
  }
}

}  // namespace mx::launch
