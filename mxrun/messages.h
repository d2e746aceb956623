// What mxrun, its agents and `mxrun top` receive from each other. mxrun/agent.h describes the messages.
//
// Each function checks all members, so that what it returns can be used as it is. All throw ProtocolError if
// the text is anything else.
//
// Thread-safety: functions without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mxrun/plan.h"

namespace mx::launch {

/// A message from an agent. Members that its kind does not have keep their defaults.
struct FromAgent {
  enum class Op { hello, started, exited, failed, asked_to_end, ended, pong };
  Op op = Op::pong;
  std::string host;
  int pid = -1;
  Role role = Role::worker;
  int rank = -1;  ///< -1 in `failed`: the node as a whole
  int code = 0, signal = 0;
  std::string problem;
  bool lasting = false, left = false;
  std::vector<std::string> tail;
};
FromAgent message_from_agent(const std::string& text);

/// A message to an agent. Members that its kind does not have keep their defaults.
struct ToAgent {
  enum class Op { run, signal, stop, kill, kill_process, reader_gone, ping, bye };
  Op op = Op::ping;
  NodePlan plan;
  int signal = 0;  ///< of `signal`, or the first one of `stop`
  int64_t grace_ms = 0;
  bool servers_only = false;
  bool of_error = false;  ///< of `reader_gone`: the reader of standard error
  Role role = Role::worker;
  int rank = -1;
};
ToAgent message_to_agent(const std::string& text);

/// What a running mxrun says about its job.
struct JobStatus {
  struct Process {
    Role role = Role::worker;
    int rank = 0, node = 0, pid = -1;  ///< pid -1: not started yet
    int64_t step = -1;                 ///< -1: none reported
    std::string host;
    std::string state;  ///< "starting", "running", "ended" or "failed"
  };
  std::string job;
  double elapsed_s = 0;
  int64_t restarts = 0;
  std::vector<Process> processes;
};
JobStatus job_status(const std::string& text);

}  // namespace mx::launch
