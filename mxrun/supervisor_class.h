// The class behind run_job(). Internal: supervisor.cc starts and ends the job, supervisor_events.cc reacts to
// what happens in between.
//
// Thread-safety: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "mxrun/first_cause.h"
#include "mxrun/job_rendezvous.h"
#include "mxrun/messages.h"
#include "mxrun/report.h"
#include "mxrun/status_socket.h"
#include "mxrun/supervisor.h"
#include "mxrun/supervisor_parts.h"

namespace mx::launch {

// Beyond the grace: for agents to clean up and to report it.
inline constexpr int64_t kAgentMs = 10000;

class Supervisor {
 public:
  Supervisor(Job job, Launcher& launcher)
      : job_(std::move(job)),
        launcher_(launcher),
        report_(job_.options, job_.nodes),
        start_deadline_(comm::Deadline::after_ms(start_timeout_ms())),
        status_socket_(job_.options.job) {}

  int run();

 private:
  int64_t start_timeout_ms() const {
    return job_.options.start_timeout_ms > 0 ? job_.options.start_timeout_ms : job_.options.timeout_ms;
  }

  /// Pings to other machines cost a round trip through the rendezvous, so they are sent less often.
  int64_t ping_interval_ms() const {
    const int64_t heartbeat_ms = job_.options.heartbeat_ms;
    return launcher_.remote() ? std::max(heartbeat_ms, job_.options.dead_after_ms / 2) : heartbeat_ms;
  }

  void set_up_signals();
  void start_agents();
  void start_group();
  void step();
  void take_signals();
  /// Ends the job because of a signal to mxrun or to an agent. The processes get `first` if they run.
  void interrupt(int number, int first);
  void take_messages(Node* node);
  void handle(Node* node, const FromAgent& message);
  void handle_exit(Node* node, const FromAgent& message);
  void check_carriers();
  /// Tells the agents if the reader of mxrun's output is gone.
  void check_readers();
  void check_cause();
  void publish(const Failure& failure);
  void note_also(Role role, int rank, int code);
  /// When an agent from which a message has just come is silent for too long.
  comm::Deadline next_silence() const {
    return comm::Deadline::after_ms(job_.options.dead_after_ms + ping_interval_ms());
  }
  bool lone_process() const { return processes_.size() == 1; }
  /// Called once in each step, which waited at most `waited_ms`. If the step took much longer, this process
  /// did not run, as when all processes of the job are stopped for a while. Then the agents may have been
  /// stopped, too, so they get as much more time to answer.
  void excuse_silence(int64_t waited_ms);
  void check_times();
  void lose_node(Node* node, const std::string& reason);
  void fail(Failure failure);
  void stop_all(int first);
  void kill_all();
  void say(Node* node, const nlohmann::json& message) {
    if (node->channel != nullptr && !node->gone) node->channel->send(message.dump());
  }
  void say_all(const nlohmann::json& message) {
    for (Node& node : nodes_) say(&node, message);
  }
  ProcessRecord* find(Role role, int rank);
  bool workers_succeeded() const;
  std::vector<std::string> early_ends() const;
  bool group_over() const;
  void end_agents();
  int finish();
  /// What `mxrun top` gets: a line of JSON.
  std::string status() const;

  Job job_;
  Launcher& launcher_;
  Report report_;
  comm::Deadline start_deadline_;
  StatusSocket status_socket_;
  std::unique_ptr<JobRendezvous> rendezvous_;
  std::unique_ptr<Session> session_;
  std::vector<Node> nodes_;
  std::vector<CarrierState> carriers_;
  std::vector<ProcessRecord> processes_, before_;  ///< of this epoch, of earlier ones
  FirstCause cause_;
  std::vector<std::string> also_failed_;
  double failed_at_ = 0;  ///< seconds since the start; what ended later may be a consequence of the failure
  std::optional<std::pair<Role, int>>
      ended_well_;  ///< the process because of which failure_ came, if it had no failure
  std::optional<Failure> failure_;
  std::optional<comm::Deadline> stop_at_, give_up_at_;
  comm::Deadline ping_at_ = comm::Deadline::after_ms(0);
  comm::Deadline::Clock::time_point last_step_ = comm::Deadline::Clock::now();
  int signal_fd_ = -1;
  bool sweep_ = true;  ///< false if this process had children before
  bool started_ = false, servers_told_ = false, timed_out_ = false;
  bool told_of_reader_[2] = {false, false};  ///< of standard output, and of standard error
  int interrupted_ = 0;
  int64_t epoch_ = 0, restarts_ = 0, next_incarnation_ = 0;
};

}  // namespace mx::launch
