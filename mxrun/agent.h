// The agent of one node: parent and reaper of the node's ranks.
//
// An agent consists of two processes. The outer one, the guardian, has a session of its own, ignores the
// terminal's signals and does nothing but wait. It is the subreaper of everything below it: when the inner
// process, which does the work, is killed, the ranks and all that they have started become children of the
// guardian, which kills them. The inner process does the same when the guardian is killed, and both when the
// launcher is gone.
//
// Messages to the agent, JSON objects with the member "op":
//   run {plan}                starts the processes of the plan
//   signal {number}           sends a signal to all process groups
//   stop {first, grace_ms, servers}  sends `first` (SIGINT or SIGTERM) and SIGKILL after the grace; after a
//   SIGINT,
//                             SIGTERM at half of the grace. Only to servers if `servers` is true.
//   kill                      sends SIGKILL to everything
//   kill_process {role, rank} sends SIGKILL to the process group of one process
//   reader_gone {error}       nobody reads standard output (or standard error) any more, although the
//                             carrier still takes it
//   ping                      asks for a pong
//   bye                       ends the agent
// Messages from the agent:
//   hello {host, pid}         once
//   started {role, rank, pid}
//   exited {role, rank, code, signal, tail}   signal is 0 unless the process was killed by one
//   failed {role, rank, code, problem, lasting}   it could not be started; lasting: nor another time;
//                             rank -1: the node as a whole
//   ended {left}              every process of the plan has ended, with all that they started, and their
//                             output is printed
//   asked_to_end {signal}     somebody has sent SIGTERM or so to the agent; it stops its processes
//   pong
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "mxrun/channel.h"

namespace mx::launch {

struct AgentOptions {
  /// Connects to the launcher. Called in the inner process.
  std::function<std::unique_ptr<Channel>()> connect;
  /// The first rank of the node reads the standard input of the agent.
  bool forward_stdin = false;
  /// The secret of the job, if the agent has got it before it connects. Then the plan does not contain it.
  std::string secret;
  /// The descriptor of the channel, so that the guardian can close its copy. -1: none.
  int channel_fd = -1;
};

/// Returns how many descriptors an agent needs: its own, and for each rank two pipes, two logs and a pidfd.
constexpr size_t files_of_agent(size_t ranks) { return 24 + 5 * ranks; }

/// Runs an agent in this process, which becomes the guardian. Returns its exit code: 0 after "bye".
/// Precondition: the process has one thread.
int run_agent(const AgentOptions& options);

}  // namespace mx::launch
