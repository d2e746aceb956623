// What the supervisor does while a job runs: signals, messages of the agents, ends of processes, times.
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "mxrun/first_cause.h"
#include "mxrun/hosts/text.h"
#include "mxrun/job_rendezvous.h"
#include "mxrun/messages.h"
#include "mxrun/report.h"
#include "mxrun/supervisor_class.h"
#include "mxrun/supervisor_parts.h"

namespace mx::launch {

using comm::Deadline;
namespace {

// How long the survivors of a failure may report it themselves before they are told to end.
constexpr int64_t kSurvivorsMs = 1000;
// For agents to kill what runs and to report it.
constexpr int64_t kKilledMs = 2000;
// After a carrier has ended: the last messages of its agents may still be on their way.
constexpr int64_t kLastMessagesMs = 300;
// A step that takes so much longer than planned means that this process did not run.
constexpr int64_t kStepLateMs = 200;

}  // namespace

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
  const ProcessRecord* const process = find(failure.role, failure.rank);
  failed_at_ = process != nullptr && process->ended ? process->finished : report_.seconds();
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
  give_up_at_ = Deadline::after_ms(kKilledMs);
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    if (number == SIGTSTP) {
      print_message("Ctrl-Z does not stop a job: its processes would take a stopped mxrun for a lost one");
      continue;
    }
    report_.signalled(number);
    if (interrupted_ != 0) {
      kill_all();
      continue;
    }
    interrupt(number, number == SIGINT ? SIGINT : SIGTERM);
  }
}

void Supervisor::interrupt(int number, int first) {
  interrupted_ = number;
  cause_.clear();
  if (started_) {
    stop_all(first);
  } else {
    kill_all();
    for (Node& node : nodes_) node.ended = true;  // no process runs yet, so there is nothing to wait for
  }
}

void Supervisor::check_readers() {
  for (const bool of_error : {false, true}) {
    bool& told = told_of_reader_[of_error ? 1 : 0];
    if (told || session_ == nullptr || !session_->reader_gone(of_error)) continue;
    told = true;
    say_all({{"op", "reader_gone"}, {"error", of_error}});
  }
}

void Supervisor::take_messages(Node* node) {
  if (node->channel == nullptr || node->gone) return;
  try {
    for (std::string text; node->channel->receive(&text);) {
      node->silent_at = next_silence();
      handle(node, message_from_agent(text));
    }
  } catch (const ProtocolError& error) {
    lose_node(node, mx::detail::concat("its agent broke the protocol: ", text::without_place(error.what())));
    return;
  }
  if (node->channel->closed()) lose_node(node, "its agent ended");
}

void Supervisor::handle(Node* node, const FromAgent& message) {
  using Op = FromAgent::Op;
  switch (message.op) {
    case Op::hello:
      node->ready = true;
      node->host = message.host;
      node->agent = message.pid;
      report_.agent_ready(node->plan->node, node->host, node->agent);
      return;
    case Op::started:
      if (ProcessRecord* process = find(message.role, message.rank); process != nullptr) {
        process->pid = message.pid;
        process->running = true;
        process->started = report_.seconds();
        report_.started(*process);
      }
      return;
    case Op::exited:
      return handle_exit(node, message);
    case Op::failed: {
      Failure failure;
      failure.role = message.role;
      failure.rank = message.rank;
      failure.node = node->plan->node;
      failure.host = node->host;
      failure.code = message.code;
      failure.reason = "could not be started: " + message.problem;
      failure.lasting = message.lasting;
      if (!failure_.has_value()) stop_at_.reset();
      fail(std::move(failure));
      if (stop_at_.has_value()) stop_all(SIGTERM);  // nothing has begun, so there is nothing to report
      return;
    }
    case Op::asked_to_end:
      if (interrupted_ == 0 && !failure_.has_value()) interrupt(message.signal, SIGTERM);
      return;
    case Op::ended:
      node->ended = true;
      if (message.left)
        print_error("mxrun: processes on " + node->host + " hang in the kernel and could not be ended\n");
      return;
    case Op::pong:
      return;
  }
}

void Supervisor::handle_exit(Node* node, const FromAgent& message) {
  ProcessRecord* process = find(message.role, message.rank);
  if (process == nullptr) return;
  process->ended = true;
  process->running = false;
  process->code = message.code;
  process->signal = message.signal;
  process->finished = report_.seconds();
  report_.exited(*process);
  // Servers end when they are told to, with whatever code.
  if (process->role == Role::server && servers_told_) return;
  if (process->code != 0) {
    if (failure_.has_value()) {
      if (failure_->role == process->role && failure_->rank == process->rank) {
        if (failure_->lasting) return;   // why it could not be started says more than how it was ended
        failure_->code = process->code;  // of a process without heartbeats, which was killed
        failure_->signal = process->signal;
        failure_->tail = message.tail;
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
    failure.tail = message.tail;
    publish(failure);
    if (interrupted_ == 0) cause_.exited(std::move(failure));
    return;
  }
  rendezvous_->put_ended(epoch_, process->role, process->rank, node->host);
  cause_.ended_well(process->role, process->rank);
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
  // The losses are taken first: a cause is published before the loss of the process that it explains, so the
  // causes that are taken afterwards contain those of all these losses.
  const std::vector<LostRank> losses = rendezvous_->take_lost();
  for (const FailsBecause& link : rendezvous_->take_causes()) {
    if (link.epoch == epoch_) cause_.because(link);
  }
  for (const LostRank& lost : losses) {
    // Servers end when they are told to, in whatever way.
    const bool told = servers_told_ && lost.role == Role::server;
    if (lost.epoch == epoch_ && !failure_.has_value() && !told) cause_.lost(lost);
  }
  if (!cause_.decide_at().has_value() || (!cause_.decide_at()->passed() && !lone_process())) return;
  auto verdict = cause_.decide([this](Role role, int rank) { return find(role, rank); });
  if (!verdict.has_value()) return;
  Failure& failure = verdict->failure;
  Node& node = nodes_[static_cast<size_t>(failure.node)];
  failure.host = node.host;
  if (verdict->late) {
    if (const int64_t step = rendezvous_->step_of(epoch_, failure.role, failure.rank); step >= 0)
      failure.reason += mx::detail::concat(" (at step ", step, ")");
  }
  if (verdict->runs) {
    say(&node, {{"op", "kill_process"}, {"role", static_cast<int>(failure.role)}, {"rank", failure.rank}});
  }
  for (const Failure& also : verdict->also) note_also(also.role, also.rank, also.code);
  ended_well_ = verdict->ended_well;
  fail(std::move(failure));
}

void Supervisor::excuse_silence(int64_t waited_ms) {
  const auto now = Deadline::Clock::now();
  const auto late = now - std::exchange(last_step_, now) - std::chrono::milliseconds(waited_ms);
  if (late <= std::chrono::milliseconds(kStepLateMs)) return;
  for (Node& node : nodes_) {
    if (node.ready) node.silent_at = earlier(Deadline(node.silent_at.at() + late), next_silence());
  }
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

std::string Supervisor::status() const {
  nlohmann::json processes = nlohmann::json::array();
  for (const ProcessRecord& process : processes_) {
    const bool lost = nodes_[static_cast<size_t>(process.node)].gone && !process.ended;  // with its agent
    const bool started = process.running || process.ended;
    const char* state = lost                ? "lost"
                        : !started          ? "starting"
                        : process.running   ? "running"
                        : process.code == 0 ? "ended"
                                            : "failed";
    processes.push_back(
        {{"role", role_name(process.role)},
         {"rank", process.rank},
         {"node", process.node},
         {"host", nodes_[static_cast<size_t>(process.node)].host},
         {"pid", process.pid},
         {"state", state},
         {"code", process.code},
         {"step", process.running ? rendezvous_->step_of(epoch_, process.role, process.rank) : -1}});
  }
  return nlohmann::json{{"job", job_.options.job},
                        {"elapsed", report_.seconds()},
                        {"restarts", restarts_},
                        {"processes", std::move(processes)}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace mx::launch
