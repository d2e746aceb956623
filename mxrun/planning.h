// Which processes run where.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mxrun/hosts/hosts.h"
#include "mxrun/launchers/select.h"
#include "mxrun/options.h"
#include "mxrun/plan.h"

namespace mx::launch {

/// Returns how many workers `--nproc-per-node` asks for on this machine: a number, "cpu" (the cores that this
/// process may use), "gpu", or "auto" (GPUs if there are any, else cores). Throws InvalidArgument.
int workers_per_node(const std::string& text);

/// Returns the one node of the local launcher, with all workers, whose number it writes into the options if
/// --nproc-per-node tells it. Throws InvalidArgument if the options contradict each other.
std::vector<Host> local_hosts(Options* options);

/// Returns what --tls and --tls-cert, --tls-key and --tls-ca say, with absolute paths.
comm::TlsSettings tls_settings(const Options& options);

/// Makes the plans of the nodes that get a process: see place_on_hosts(). The plans lack rendezvous and
/// secret. Throws InvalidArgument if there are fewer slots than processes.
std::vector<NodePlan> plan_nodes(const Options& options, const std::vector<Host>& hosts);

/// Numbers the processes of all nodes for the next start of the group.
void number_incarnations(std::vector<NodePlan>* nodes, int64_t* next);

/// A table for --dry-run: command, nodes, ranks and the variables that each process gets. `remote` says that
/// nodes are other machines.
std::string describe(const std::vector<NodePlan>& nodes, const ListenAt& listen_at, bool remote);

}  // namespace mx::launch
