// Which processes run where.
//
// Thread-safety: any thread.
#pragma once

#include <string>
#include <vector>

#include "mxrun/options.h"
#include "mxrun/plan.h"

namespace mx::launch {

/// A node and how many workers it takes.
struct Host {
  std::string name;
  int slots = 1;
};

/// Returns how many workers `--nproc-per-node` asks for on this machine: a number, "cpu" (the cores that this
/// process may use), "gpu", or "auto" (GPUs if there are any, else cores). Throws InvalidArgument.
int workers_per_node(const std::string& text);

/// Returns the one node of the local launcher, with all workers. Throws InvalidArgument if the options
/// contradict each other.
std::vector<Host> local_hosts(const Options& options);

/// Distributes the workers over the hosts, filling one after the other, and the servers in turn. Throws
/// InvalidArgument if there are fewer slots than workers. The plans lack rendezvous and secret.
std::vector<NodePlan> plan_nodes(const Options& options, const std::vector<Host>& hosts);

/// Numbers the processes of all nodes for the next start of the group.
void number_incarnations(std::vector<NodePlan>* nodes, int64_t* next);

/// A table for --dry-run: command, nodes, ranks and the variables that each process gets.
std::string describe(const std::vector<NodePlan>& nodes);

}  // namespace mx::launch
