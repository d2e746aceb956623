// For tests that count what is pushed.
#pragma once

#include "engine/base/cpus.h"
#include "engine/device/registry.h"
#include "engine/options.h"

namespace mx::test {

/// Are operations pushed that are not small? With one processor they run in the calling thread
/// (docs/ndarray.md), and counts of what was pushed say nothing.
inline bool larger_operations_are_pushed() { return processors() > 1 || num_gpus() > 0; }

/// An engine whose caller does only what is small itself: with two threads it also does what is not, while
/// the other one looks for work.
inline EngineOptions options_for_counting() {
  EngineOptions options;
  options.mode = EngineMode::threaded;
  options.threads = 3;
  return options;
}

}  // namespace mx::test
