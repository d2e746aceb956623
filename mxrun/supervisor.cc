#include "mxrun/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "mxrun/descendants.h"
#include "mxrun/first_cause.h"
#include "mxrun/job_rendezvous.h"
#include "mxrun/launchers/rendezvous_channel.h"
#include "mxrun/launchers/select.h"
#include "mxrun/planning.h"
#include "mxrun/process.h"
#include "mxrun/report.h"
#include "mxrun/supervisor_parts.h"

namespace mx::launch {
namespace {

using comm::Deadline;
using nlohmann::json;

// How long the survivors of a failure may report it themselves before they are told to end.
constexpr int64_t kSurvivorsMs = 1000;
// After a carrier has ended: the last messages of its agents may still be on their way.
constexpr int64_t kLastMessagesMs = 300;
// Beyond the grace: for agents to clean up and to report it.
constexpr int64_t kAgentMs = 10000;

class Supervisor {
 public:
  Supervisor(Job job, Launcher& launcher)
      : job_(std::move(job)),
        launcher_(launcher),
        report_(job_.options, job_.nodes),
        start_deadline_(Deadline::after_ms(start_timeout_ms())) {}

  int run();

 private:
  int64_t start_timeout_ms() const {
    return job_.options.start_timeout_ms > 0 ? job_.options.start_timeout_ms : job_.options.timeout_ms;
  }

  /// Agents on other machines are asked less often: the rendezvous keeps every message.
  int64_t ping_interval_ms() const {
    const int64_t heartbeat_ms = job_.options.heartbeat_ms;
    return launcher_.remote() ? std::max(heartbeat_ms, job_.options.dead_after_ms / 2) : heartbeat_ms;
  }

  void set_up_signals();
  void start_agents();
  void start_group();
  void step();
  void take_signals();
  void take_messages(Node* node);
  void handle(Node* node, const json& message);
  void handle_exit(Node* node, const json& message);
  void check_carriers();
  void check_cause();
  void publish(const Failure& failure);
  void note_also(Role role, int rank, int code);
  bool lone_process() const { return processes_.size() == 1; }
  void check_times();
  void lose_node(Node* node, const std::string& reason);
  void fail(Failure failure);
  void stop_all(int first);
  void kill_all();
  void say(Node* node, const json& message) {
    if (node->channel != nullptr && !node->gone) node->channel->send(message.dump());
  }
  void say_all(const json& message) {
    for (Node& node : nodes_) say(&node, message);
  }
  ProcessRecord* find(Role role, int rank);
  bool workers_succeeded() const;
  bool group_over() const;
  void end_agents();
  int finish();

  Job job_;
  Launcher& launcher_;
  Report report_;
  Deadline start_deadline_;
  std::unique_ptr<JobRendezvous> rendezvous_;
  std::unique_ptr<Session> session_;
  std::vector<Node> nodes_;
  std::vector<CarrierState> carriers_;
  std::vector<ProcessRecord> processes_, before_;  ///< of this epoch, of earlier ones
  FirstCause cause_;
  std::vector<std::string> also_failed_;
  std::optional<Failure> failure_;
  std::optional<Deadline> stop_at_, give_up_at_;
  Deadline ping_at_ = Deadline::after_ms(0);
  int signal_fd_ = -1;
  bool sweep_ = true;  ///< false if this process had children before
  bool sigpipe_ignored_ = false;
  bool started_ = false, servers_told_ = false, timed_out_ = false;
  int interrupted_ = 0;
  int64_t epoch_ = 0, restarts_ = 0, next_incarnation_ = 0;
};

void Supervisor::set_up_signals() {
  // A shell that ends with `exec mxrun` leaves its children to this process; they are no part of the job.
  sweep_ = waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
  become_subreaper();
  sigpipe_ignored_ = is_ignored(SIGPIPE);
  ignore_sigpipe();
  signal(SIGCHLD, SIG_DFL);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(number)) sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

void Supervisor::start_agents() {
  rendezvous_ = open_rendezvous(job_);
  const int master_port = free_port();
  for (NodePlan& plan : job_.nodes) {
    plan.rendezvous = rendezvous_->address();
    plan.master_port = master_port;
    plan.secret = job_.secret;
  }
  AgentCommand command;
  command.program = launcher_.remote() ? program_on_nodes() : "/proc/self/exe";
  command.rendezvous = rendezvous_->address();
  command.job = job_.options.job;
  command.secret = job_.secret;
  command.secret_file = job_.options.secret_file;
  command.sigpipe_ignored = sigpipe_ignored_;
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

bool Supervisor::group_over() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.gone || node.ended; });
}

// Tells the survivors, through the rendezvous.
void Supervisor::publish(const Failure& failure) {
  if (failure.rank < 0) {
    for (const RankPlan& rank : nodes_[static_cast<size_t>(failure.node)].plan->ranks) {
      rendezvous_->put_lost(epoch_, rank.role, rank.rank, failure.host, failure.reason);
    }
    return;
  }
  std::string reason = failure.reason;
  if (reason.empty()) {
    reason = failure.signal > 0 ? mx::detail::concat("killed by signal ", failure.signal)
                                : mx::detail::concat("exit code ", failure.code);
  }
  rendezvous_->put_lost(epoch_, failure.role, failure.rank, failure.host, reason);
}

void Supervisor::note_also(Role role, int rank, int code) {
  also_failed_.push_back(process_name(role, rank) + " (" + std::to_string(code) + ")");
}

void Supervisor::fail(Failure failure) {
  if (failure_.has_value() || interrupted_ != 0) return;
  cause_.clear();
  publish(failure);
  report_.failed(failure);
  failure_ = std::move(failure);
  stop_at_ = Deadline::after_ms(kSurvivorsMs);
}

void Supervisor::stop_all(int first) {
  stop_at_.reset();
  const int64_t grace_ms = job_.options.grace_ms;
  say_all({{"op", "stop"}, {"first", first}, {"grace_ms", grace_ms}, {"servers", false}});
  give_up_at_ = Deadline::after_ms(grace_ms + kAgentMs);
}

void Supervisor::kill_all() {
  say_all({{"op", "kill"}});
  give_up_at_ = Deadline::after_ms(2000);
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    report_.signalled(number);
    if (interrupted_ != 0) {
      kill_all();
      continue;
    }
    interrupted_ = number;
    cause_.clear();
    if (started_) {
      stop_all(number == SIGINT ? SIGINT : SIGTERM);
    } else {
      kill_all();
      for (Node& node : nodes_) node.ended = true;
    }
  }
}

void Supervisor::take_messages(Node* node) {
  if (node->channel == nullptr || node->gone) return;
  for (std::string text; node->channel->receive(&text);) {
    node->silent_at = Deadline::after_ms(job_.options.dead_after_ms + ping_interval_ms());
    handle(node, json::parse(text));
  }
  if (node->channel->closed()) lose_node(node, "its agent ended");
}

void Supervisor::handle(Node* node, const json& message) {
  const std::string op = message.at("op");
  if (op == "hello") {
    node->ready = true;
    node->host = message.at("host");
    node->agent = message.at("pid");
    report_.agent_ready(node->plan->node, node->host, node->agent);
  } else if (op == "started") {
    ProcessRecord* process = find(static_cast<Role>(message.at("role").get<int>()), message.at("rank"));
    if (process == nullptr) return;
    process->pid = message.at("pid");
    process->running = true;
    process->started = report_.seconds();
    report_.started(*process);
  } else if (op == "exited") {
    handle_exit(node, message);
  } else if (op == "failed") {
    Failure failure;
    failure.role = static_cast<Role>(message.at("role").get<int>());
    failure.rank = message.at("rank");
    failure.node = node->plan->node;
    failure.host = node->host;
    failure.code = message.at("code");
    failure.reason = "could not be started: " + message.at("problem").get<std::string>();
    if (!failure_.has_value()) stop_at_.reset();
    fail(std::move(failure));
    if (stop_at_.has_value()) stop_all(SIGTERM);  // nothing has begun, so there is nothing to report
  } else if (op == "asked_to_end") {
    if (interrupted_ == 0 && !failure_.has_value()) {
      interrupted_ = message.at("signal");
      stop_all(SIGTERM);
    }
  } else if (op == "ended") {
    node->ended = true;
    if (message.at("left").get<bool>()) {
      print_error("mxrun: processes on " + node->host + " hang in the kernel and could not be ended\n");
    }
  }
}

void Supervisor::handle_exit(Node* node, const json& message) {
  ProcessRecord* process = find(static_cast<Role>(message.at("role").get<int>()), message.at("rank"));
  if (process == nullptr) return;
  process->ended = true;
  process->running = false;
  process->code = message.at("code");
  process->signal = message.at("signal");
  process->finished = report_.seconds();
  report_.exited(*process);
  // Servers end when they are told to, with whatever code.
  if (process->role == Role::server && servers_told_) return;
  if (process->code != 0) {
    if (failure_.has_value()) {
      if (failure_->role == process->role && failure_->rank == process->rank) {
        failure_->code = process->code;  // of a process without heartbeats, which was killed
        failure_->signal = process->signal;
        failure_->tail = message.at("tail").get<std::vector<std::string>>();
      } else if (!give_up_at_.has_value()) {
        note_also(process->role, process->rank, process->code);
      }
      return;
    }
    Failure failure;
    failure.role = process->role;
    failure.rank = process->rank;
    failure.node = node->plan->node;
    failure.host = node->host;
    failure.pid = process->pid;
    failure.code = process->code;
    failure.signal = process->signal;
    failure.tail = message.at("tail").get<std::vector<std::string>>();
    publish(failure);
    if (interrupted_ == 0) cause_.exited(std::move(failure));
    return;
  }
  if (!failure_.has_value() && interrupted_ == 0 && !servers_told_ && workers_succeeded() &&
      job_.options.servers > 0) {
    servers_told_ = true;
    say_all({{"op", "stop"}, {"first", SIGTERM}, {"grace_ms", job_.options.grace_ms}, {"servers", true}});
  }
}

void Supervisor::lose_node(Node* node, const std::string& reason) {
  if (node->gone) return;
  node->gone = true;
  if (node->ended && started_) return;
  for (ProcessRecord& process : processes_) {
    if (process.node == node->plan->node) process.running = false;
  }
  Failure failure;
  failure.node = node->plan->node;
  failure.host = node->host;
  failure.reason = reason;
  fail(std::move(failure));
  if (!started_) {
    for (Node& other : nodes_) other.ended = true;  // no process runs yet, so there is nothing to wait for
  }
}

void Supervisor::check_carriers() {
  int status = 0;
  // Orphans of a killed agent are children of this process, too.
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (CarrierState& state : carriers_) {
      if (state.carrier.pid != pid) continue;
      state.ended = true;
      state.status = status;
      for (const int node : state.carrier.nodes) {
        // The agent's last messages may still be on their way.
        nodes_[static_cast<size_t>(node)].gone_at = Deadline::after_ms(kLastMessagesMs);
      }
    }
  }
}

void Supervisor::check_cause() {
  for (const FailsBecause& link : rendezvous_->take_causes()) {
    if (link.epoch == epoch_) cause_.because(link);
  }
  for (const LostRank& lost : rendezvous_->take_lost()) {
    if (lost.epoch == epoch_ && !failure_.has_value()) cause_.lost(lost);
  }
  if (!cause_.decide_at().has_value() || (!cause_.decide_at()->passed() && !lone_process())) return;
  auto verdict = cause_.decide([this](Role role, int rank) { return find(role, rank); });
  if (!verdict.has_value()) return;
  Failure& failure = verdict->failure;
  Node& node = nodes_[static_cast<size_t>(failure.node)];
  failure.host = node.host;
  if (verdict->runs) {
    say(&node, {{"op", "kill_process"}, {"role", static_cast<int>(failure.role)}, {"rank", failure.rank}});
  }
  for (const Failure& also : verdict->also) note_also(also.role, also.rank, also.code);
  fail(std::move(failure));
}

void Supervisor::check_times() {
  if (!started_ && start_deadline_.passed() && !timed_out_ && interrupted_ == 0) {
    timed_out_ = true;
    std::string missing;
    for (const Node& node : nodes_) {
      if (!node.ready) missing += (missing.empty() ? "" : ", ") + node.plan->host;
    }
    print_error(mx::detail::concat("mxrun: expected the agents of all nodes within ", start_timeout_ms(),
                                   " ms, got none from: ", missing,
                                   "; raise --start-timeout or check the nodes\n"));
    kill_all();
    for (Node& node : nodes_) node.ended = true;
  }
  for (Node& node : nodes_) {
    if (node.gone_at.has_value() && node.gone_at->passed()) lose_node(&node, "its agent ended");
    if (node.ready && !node.gone && !node.ended && node.silent_at.passed()) {
      lose_node(&node,
                mx::detail::concat("its agent has not answered for ", job_.options.dead_after_ms, " ms"));
    }
  }
  if (ping_at_.passed()) {
    for (Node& node : nodes_) {
      if (node.ready) say(&node, {{"op", "ping"}});
    }
    ping_at_ = Deadline::after_ms(ping_interval_ms());
  }
  if (stop_at_.has_value() && stop_at_->passed()) stop_all(SIGTERM);
  if (give_up_at_.has_value() && give_up_at_->passed()) {
    for (Node& node : nodes_) {
      if (!node.ended) lose_node(&node, "its agent does not end");
    }
  }
}

void Supervisor::step() {
  std::vector<pollfd> watched{{signal_fd_, POLLIN, 0}, {rendezvous_->lost_fd(), POLLIN, 0}};
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
  poll(watched.data(), watched.size(), static_cast<int>(std::min<int64_t>(next.left_ms(), 1000)));
  take_signals();
  check_carriers();
  for (Node& node : nodes_) take_messages(&node);
  check_cause();
  check_times();
  if (!started_ && interrupted_ == 0 && !failure_.has_value() &&
      std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.ready; })) {
    start_group();
  }
}

void Supervisor::end_agents() {
  say_all({{"op", "bye"}});
  const Deadline deadline = Deadline::after_ms(timed_out_ || interrupted_ != 0 ? 500 : kAgentMs);
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
  while (running() && !deadline.passed()) {
    pollfd watched{signal_fd_, POLLIN, 0};
    poll(&watched, 1, static_cast<int>(std::min<int64_t>(deadline.left_ms(), 50)));
    signalfd_siginfo info{};
    while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    }
    check_carriers();
  }
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

int Supervisor::finish() {
  end_agents();
  if (failure_.has_value() && failure_->rank < 0 && failure_->code == 0) {
    // The exit code of what carried the agent says more than nothing.
    failure_->code = 128 + SIGKILL;
    for (const CarrierState& state : carriers_) {
      const auto& on = state.carrier.nodes;
      if (!state.ended || std::find(on.begin(), on.end(), failure_->node) == on.end()) continue;
      const int code = WIFEXITED(state.status) ? WEXITSTATUS(state.status) : 128 + WTERMSIG(state.status);
      if (code != 0) failure_->code = code;
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
  } else if (failure_.has_value()) {
    code = failure_->code;
    result = "failed";
    print_error(failure_block(*failure_, also_failed_));
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
    const bool again = failure_.has_value() && interrupted_ == 0 && !timed_out_ &&
                       job_.options.restart == Restart::group && restarts_ < job_.options.max_restarts &&
                       std::none_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.gone; });
    if (!again) return finish();
    ++restarts_;
    ++epoch_;
    print_error(failure_block(*failure_, also_failed_));
    print_error(mx::detail::concat("mxrun: restart ", restarts_, " of ", job_.options.max_restarts,
                                   ": the whole group starts again\n"));
    report_.restarting(epoch_, restarts_);
    failure_.reset();
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

}  // namespace

int run_job(Job job, Launcher& launcher) {
  try {
    return Supervisor(std::move(job), launcher).run();
  } catch (const InvalidArgument& error) {
    print_error(std::string("mxrun: ") + error.what() + "\n");
    return kExitConfiguration;
  } catch (const BindFailed& error) {
    print_error(std::string("mxrun: ") + error.what() + "\n");
    return kExitBind;
  } catch (const CommunicationError& error) {
    print_error(std::string("mxrun: ") + error.what() + "\n");
    return kExitRendezvous;
  }
}

}  // namespace mx::launch
