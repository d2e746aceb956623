// What a machine of one processor does otherwise.
#pragma once

#include "engine/base/cpus.h"
#include "engine/device/registry.h"

namespace mx::test {

/// Are operations pushed that are not small? With one processor they run in the calling thread
/// (docs/ndarray.md), and counts of what was pushed say nothing.
inline bool larger_operations_are_pushed() { return processors() > 1 || num_gpus() > 0; }

}  // namespace mx::test
