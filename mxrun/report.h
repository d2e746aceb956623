// What is known about a job: events, job.json, and the block that names the first failure.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mxrun/options.h"
#include "mxrun/plan.h"

namespace mx::launch {

/// "worker" or "server", as in job.json and in the rendezvous.
const char* role_name(Role role);

/// Why the job failed: the first process that failed, or a node.
struct Failure {
  Role role = Role::worker;
  int rank = -1;  ///< -1: the node as a whole
  int node = 0;
  std::string host;
  int64_t pid = -1;
  int code = 0, signal = 0;  ///< code is 128 + signal if a signal ended the process
  std::string reason;        ///< if it is not the exit code: "could not be started: ..."
  bool lasting = false;      ///< it would come again after a restart: the program cannot be executed
  std::vector<std::string> tail;
};

/// The lines for standard error, each ends with a newline. `early` names the workers that had ended
/// with exit code 0 before the failure, `also` those that failed after the first.
std::string failure_block(const Failure& failure, const std::vector<std::string>& early,
                          const std::vector<std::string>& also);

/// One process that ran, for job.json.
struct ProcessRecord {
  Role role = Role::worker;
  int rank = 0, node = 0;
  int64_t epoch = 0, incarnation = 0, pid = -1;
  bool running = false, ended = false;
  int code = -1, signal = 0;
  double started = 0, finished = 0;  ///< seconds since the start of the job
};

class Report {
 public:
  /// Opens the file of events. Throws InvalidArgument if it cannot be written.
  Report(const Options& options, const std::vector<NodePlan>& nodes);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  /// Seconds since the start.
  double seconds() const;

  // Each writes a line to the file of events.
  void job_started(const std::string& launcher, const std::string& rendezvous);
  void agent_ready(int node, const std::string& host, int64_t pid);
  void started(const ProcessRecord& process);
  void exited(const ProcessRecord& process);
  void failed(const Failure& failure);
  void signalled(int number);
  void restarting(int64_t epoch, int64_t restarts);
  /// Ends the file of events and writes job.json.
  void job_ended(int exit_code, const std::string& result, const std::vector<ProcessRecord>& processes,
                 int64_t restarts);

 private:
  struct Line;
  void say_lost(const std::string& path);
  void write_line(const Line& line);
  void write_job(const std::string& result, int exit_code, const std::vector<ProcessRecord>& processes,
                 int64_t restarts);

  const Options& options_;
  const std::vector<NodePlan>& nodes_;
  std::map<int, std::string> hosts_;  ///< by node, as the agents name them
  bool said_lost_ = false;            // that a file could not be written, which is said once
  int events_ = -1;
  std::string launcher_, rendezvous_, begin_;
  int64_t begin_ns_ = 0;
  std::string failure_json_;
};

}  // namespace mx::launch
