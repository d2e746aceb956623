// Groups over a stand-in for a library such as NCCL: it moves the data of calls and compares nothing. For
// tests of the comparison that goes ahead of such a library.
//
// The calls meet on a board in the order in which each rank makes them, whatever they are. The rank that
// comes last computes the results of all. So ranks that make different calls get nonsense, as with NCCL, and
// the board counts that.
//
// Thread-safety: each rank is a thread.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace mx::comm::testing {

/// Returns how many calls have moved the data of different calls, in all groups of the process.
int mixed_calls();
/// Element r is rank r. With `compares`, a CallComparison goes ahead of each call, as in the module for NCCL.
std::vector<std::shared_ptr<Communicator>> make_library_group(int ranks, bool compares);

}  // namespace mx::comm::testing
