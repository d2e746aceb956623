// Place: which part of a job this process is.
//
// A process is started by mxrun, or directly by mpirun, srun or as a pod of a Kubernetes Indexed Job; each
// exports other variables. find_place() reads them. Without any of them the process is alone: rank 0 of 1.
//
// Thread-safety: any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace mx::comm {

enum class Role : uint8_t { worker, server };

/// The time limits of a job, in ms, that are not set by themselves.
struct TimeLimits {
  int64_t heartbeat_ms;   ///< between two heartbeats
  int64_t dead_after_ms;  ///< silence after which a process is lost
  int64_t grace_ms;       ///< between SIGTERM and SIGKILL
};

/// Derives them from the longest time that a call may wait: a twelfth of it for silence (2 to 5 s), a tenth
/// of that for heartbeats, a sixth for the grace (2 to 10 s). With the default of 60 s: 500 ms, 5 s, 10 s.
constexpr TimeLimits limits_from(int64_t timeout_ms) {
  const int64_t dead_after_ms = std::clamp<int64_t>(timeout_ms / 12, 2000, 5000);
  return {dead_after_ms / 10, dead_after_ms, std::clamp<int64_t>(timeout_ms / 6, 2000, 10000)};
}

struct Place {
  std::string started_by = "nothing";  ///< "mxrun", "mpirun", "mpiexec", "srun", "kubernetes" or "nothing"
  Role role = Role::worker;
  int rank = 0, size = 1;              ///< among the processes of this role
  int local_rank = 0, local_size = 1;  ///< among those of this host and role
  int node = 0;
  int workers = 1;          ///< number of workers of the job; for a worker, equal to size
  int servers = 0;          ///< number of servers of the job
  int64_t epoch = 0;        ///< 0 for the first start of the group, one more after each restart
  int64_t incarnation = 0;  ///< differs for each process of the job that ever ran
  int64_t restarts = 0;
  std::string job;         ///< name of the job
  std::string rendezvous;  ///< "host:port"; empty if there is none
  std::string interface;   ///< name of the network interface to listen at; empty: loopback
  int64_t timeout_ms = 60000;
  int64_t heartbeat_ms = limits_from(60000).heartbeat_ms;
  int64_t dead_after_ms =
      limits_from(60000).dead_after_ms;  ///< a process without heartbeats for so long is lost
  /// MX_COST_MODEL: "fit" (true) measures the algorithms of allreduce when the first group with messages is
  /// made, "fixed" uses the defaults. The setting of rank 0 counts for all.
  bool fit_cost_model = true;
};

/// Looks up an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns the place of this process. Throws InvalidArgument if the variables contradict each other or are
/// malformed; the message names them and their values.
Place find_place(const Environment& environment);
/// The same with the environment of the process.
Place find_place();

}  // namespace mx::comm
