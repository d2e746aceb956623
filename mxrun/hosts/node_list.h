// Slurm's compressed lists of nodes.
//
// Thread-safety: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mx::launch {

/// Returns the names in a list such as "n[1-3,07],x" of SLURM_JOB_NODELIST: n1, n2, n3, n07, x. A number with
/// leading zeros keeps its width. A name may have several brackets; the last one varies fastest. Throws
/// InvalidArgument for a malformed list, for a name that check_host_name() refuses and for more than
/// kMostHosts names. A name that is repeated stays repeated, as in Slurm.
std::vector<std::string> parse_node_list(std::string_view text);

/// Parses SLURM_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE, "4(x2),3": 4, 4, 3.
std::vector<int> parse_repeated_counts(std::string_view text);

}  // namespace mx::launch
