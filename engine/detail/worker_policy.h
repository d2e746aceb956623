// How many workers an engine calls. Internal; plain functions.
//
// Linking and completing an operation under the lock takes about 60 ns. So empty operations feed one worker:
// a second one would only contend for the lock. Operations of one microsecond feed a dozen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mx::detail {

struct WorkerPolicy {
  /// An operation this short (in ticks, about a third of a microsecond) costs no more than handing it to
  /// another core.
  static constexpr int64_t kShortTicks = 1000;

  /// How many workers operations of this length feed.
  static int wanted(int64_t body_ticks, int threads) {
    return static_cast<int>(std::min<int64_t>(threads, 1 + body_ticks / 150));
  }

  /// How many workers to call at once when the operations that run have turned out to be long and `ready`
  /// others have nobody to run them: one for each, as far as there are threads. At least one is called where
  /// there is any work, since the engine may have none at all.
  static int to_call(size_t ready, int active, int threads) {
    const auto free = static_cast<size_t>(std::max(0, threads - active));
    return std::max(1, static_cast<int>(std::min(ready, free)));
  }
};

}  // namespace mx::detail
