// The plan of a job: which processes run on which node, and with what.
//
// Values without behaviour. The launcher makes a NodePlan for each node; the node's agent carries it out.
// Agents on other machines receive the plan as JSON: to_json(), plan_from_json().
//
// Thread-safety: values without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/net/tls.h"
#include "comm/place.h"

namespace mx::launch {

using comm::Role;

/// Ranks and numbers of processes are not larger.
inline constexpr int kMostProcesses = 1 << 20;

/// "rank 3" or "server 0": the name of a process in messages.
std::string process_name(Role role, int rank);

/// One process of the program.
struct RankPlan {
  Role role = Role::worker;
  int rank = 0;
  int local_rank = 0;       ///< among the processes of this role on this node
  int64_t incarnation = 0;  ///< differs for each process of the job that ever ran
};

/// What happens to the output of the ranks.
struct OutputPlan {
  bool tag = false;        ///< each line begins with "[node:rank] "
  bool timestamp = false;  ///< each line begins with the time
  std::string log_dir;     ///< absolute folder of one file per rank and stream; empty: none
  bool tee = true;         ///< output is also printed when there is a log_dir
  std::vector<int> shown;  ///< ranks whose output is printed; empty: all
};

/// Everything that the agent of one node needs to know.
struct NodePlan {
  std::string job;
  int node = 0, nodes = 1;
  std::string host;               ///< as the user or the scheduler names the node; "localhost" for this one
  std::vector<std::string> argv;  ///< the program and its arguments
  std::string folder;             ///< working folder
  std::vector<std::pair<std::string, std::string>> environment;  ///< set in addition (`-x`)
  std::vector<RankPlan> ranks;                                   ///< the processes of this node
  int workers = 1, servers = 0;                                  ///< of the whole job
  int local_workers = 1, local_servers = 0;                      ///< of this node
  bool bind = true;                                              ///< workers get cores of their own
  int64_t epoch = 0, restarts = 0;
  std::string rendezvous;  ///< "host:port"; empty if there is none
  int master_port = 0;     ///< MASTER_PORT for programs of other libraries: a port that was free
  std::string secret;      ///< bytes that every process of the job knows; empty if the agent has them already
  comm::TlsSettings tls;   ///< with which its processes encrypt their connections
  int64_t timeout_ms = 60000, heartbeat_ms = 500, dead_after_ms = 5000, grace_ms = 10000;
  OutputPlan output;
};

std::string to_json(const NodePlan& plan);
/// Checks every member, so that the plan can be used as it is. Throws ProtocolError if the text is not a
/// plan.
NodePlan plan_from_json(const std::string& text);

}  // namespace mx::launch
