// Which processors each worker of a node runs on.
//
// Thread-safety: any thread.
#pragma once

#include <vector>

namespace mx::launch {

/// The processors of one core: more than one if the core runs several hardware threads.
using Core = std::vector<int>;

/// Returns the cores of this process's affinity mask, in the order of their first processors.
std::vector<Core> usable_cores();

/// Returns mx::usable_cpus() as it is without MX_NUM_THREADS. Precondition: the process has one thread,
/// because the variable is away for a moment.
int cpus_of_this_process();

/// Returns for each of `workers` workers the processors that are its own: neighbouring cores, as evenly many
/// as possible, the first workers one more. Empty if there are fewer cores than workers.
std::vector<std::vector<int>> share_cores(const std::vector<Core>& cores, int workers);

/// Returns how many threads each of `workers` workers should use if they share `cpus` processors; at least 1.
int threads_per_worker(int cpus, int workers);

}  // namespace mx::launch
