// The environment variables that tell a process its place in the job; comm/place.h reads them.
//
// Thread-safety: any thread, as long as none changes the environment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mxrun/plan.h"

namespace mx::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Returns what mxrun exports to one process: MX_RANK and so on, their aliases RANK, WORLD_SIZE, ..., and
/// DMLC_*. `threads` > 0 sets MX_NUM_THREADS and OMP_NUM_THREADS; `secret_fd` >= 0 sets MX_SECRET_FD.
Variables rank_variables(const NodePlan& plan, const RankPlan& rank, int threads, int secret_fd);

/// Returns the names of the variables that rank_variables() sets whatever the user has set. Thread counts are
/// not among them: those that the user sets stay.
std::vector<std::string> variables_of_mxrun();

/// Returns the environment of a process, "NAME=VALUE": that of this process, changed by the plan's `-x`, then
/// by rank_variables(). Thread counts that the user has set stay.
std::vector<std::string> rank_environment(const NodePlan& plan, const RankPlan& rank, int threads,
                                          int secret_fd);

}  // namespace mx::launch
