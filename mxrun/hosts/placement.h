// Placement: which rank and which server runs on which host.
//
// Thread-safety: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mxrun/hosts/hosts.h"

namespace mx::launch {

/// The processes of one host, in ascending order.
struct HostPlan {
  std::string host;
  std::vector<int> ranks;
  std::vector<int> servers;
  bool operator==(const HostPlan&) const = default;
};

/// Places `workers` ranks and `servers` servers, each of which takes a slot. The servers are dealt out one a
/// host at a time, so that their traffic spreads; then the ranks fill the hosts in order, so that neighbours
/// share a host. Returns the hosts that got a process, in the order of `hosts`. Throws InvalidArgument if
/// there are too few slots, saying how many are missing.
std::vector<HostPlan> place_on_hosts(const std::vector<Host>& hosts, int workers, int servers);

/// Parses the value of --nnodes, "N" or "MIN:MAX". Throws InvalidArgument if MIN differs from MAX: the number
/// of nodes of a job is fixed.
int parse_node_count(std::string_view text);

/// What --nproc-per-node asks for.
struct ProcessesPerNode {
  enum class Kind { number, cpus, gpus, automatic };
  Kind kind = Kind::number;
  int number = 0;  ///< only for Kind::number
  bool operator==(const ProcessesPerNode&) const = default;
};

/// Parses "4", "auto", "gpu" or "cpu".
ProcessesPerNode parse_processes_per_node(std::string_view text);
/// Returns the number on a node with so many CPUs and GPUs. "auto" is one for each GPU if there is one, and
/// one for each CPU otherwise. Throws InvalidArgument for "gpu" on a node without.
int processes_on_node(const ProcessesPerNode& asked, int cpus, int gpus);

}  // namespace mx::launch
