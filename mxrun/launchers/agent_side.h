// The side of the agent: how it finds its number, its secret and the launcher.
//
// Thread-safety: any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "mxrun/channel.h"
#include "mxrun/launchers/select.h"
#include "mxrun/options.h"

namespace mx::launch {

/// Returns the number of this agent's node: --agent-node, or for -1 that of srun, mpirun or the Indexed Job.
/// Throws InvalidArgument if there is none.
int agent_node(const Options& options, const Lookup& lookup = own_variable);

/// Removes the variables that srun and mpirun have set for the agent as their task. The ranks are no tasks of
/// theirs: a rank that initialises MPI would take itself for the agent.
void forget_task_variables();

/// Reads the secret from a descriptor: a line of hexadecimal digits. Throws InvalidArgument if it is none.
std::string read_hexadecimal_secret(int descriptor);

/// Connects to the rendezvous of the job (--rdzv) and returns the channel of this node. It is closed when the
/// connection is lost. Throws Timeout, AuthenticationError or InvalidArgument.
std::unique_ptr<Channel> connect_agent(const Options& options, int node, const std::string& secret);

/// Returns the name of the interface through which this machine reaches "host:port"; empty for loopback and
/// if it is not known.
std::string interface_towards(const std::string& endpoint);

}  // namespace mx::launch
