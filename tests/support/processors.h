// Helpers for tests that count pushed operations.
#pragma once

#include "engine/base/cpus.h"
#include "engine/device/registry.h"
#include "engine/options.h"

namespace mx::test {

/// Returns true if operations that are not small are pushed. With one processor they run in the calling
/// thread (docs/ndarray.md), so counts of pushed operations mean nothing.
inline bool larger_operations_are_pushed() { return processors() > 1 || num_gpus() > 0; }

/// Returns options of an engine in which the calling thread itself runs only small operations. With two
/// threads the caller would also run larger ones while the other thread looks for work.
inline EngineOptions options_for_counting() {
  EngineOptions options;
  options.mode = EngineMode::threaded;
  options.threads = 3;
  return options;
}

}  // namespace mx::test
