// The pool's limit on cached memory: which segments return to the backend, and when.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/device/pool.h"

namespace mx {

size_t watermark_from_environment(size_t otherwise) {
  const char* value = std::getenv("MX_POOL_WATERMARK");
  if (value == nullptr || *value == '\0') return otherwise;
  const std::string_view text = value;
  if (text == "unlimited") return SIZE_MAX;
  constexpr std::string_view kUnits = "KMGT";
  size_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (unit.size() == 1 && kUnits.find(unit[0]) != kUnits.npos) {
    shift = 10 * (static_cast<unsigned>(kUnits.find(unit[0])) + 1);
    unit = {};
  }
  MX_CHECK(error == std::errc{} && unit.empty() && number <= SIZE_MAX >> shift, InvalidArgument,
           "[MX_POOL_WATERMARK] expected a number of bytes such as 1500000, 512K, 512M, 2G or 1T, or the "
           "word unlimited, got '",
           text, "'");
  return number << shift;
}

bool separate_from_environment() {
  const char* const value = std::getenv("MX_POOL_SEPARATE");
  return value != nullptr && std::string_view(value) == "1";
}

void Pool::set_watermark(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    watermark_ = options_.separate ? 0 : bytes;
  }
  keep_watermark(MayWait::yes);
}

// Called after every change that may have increased the cached bytes, or the bytes in flight that will be
// cached.
void Pool::keep_watermark(MayWait may_wait) noexcept try {
  std::vector<Watched> watched;
  {
    std::lock_guard lock(mutex_);
    if (stats_.cached_bytes + stats_.in_flight_bytes <= watermark_) return;
    poll();
    watched = lanes_to_watch();
    if (!above_watermark() && watched.empty()) return;
  }
  if (may_wait == MayWait::yes || !source_.release_may_wait()) {
    shed();
  } else {
    shed_due_.store(true, std::memory_order_relaxed);
  }
  for (const Watched& lane : watched) watch(watch_, lane);
} catch (...) {
  log(LogLevel::error, "[pool] could not release cached memory of ", context_, ": ",
      current_exception_text());
}

// Detaches one unused segment that exceeds the watermark, if there is one. Segments that are larger than the
// watermark go first, so that they do not evict small segments that are reused all the time. The others go in
// the order of their free().
PoolSegment Pool::detach_above_watermark() {
  for (const bool too_large : {true, false}) {
    for (PoolBlock* block = settled_.oldest(); block != nullptr && above_watermark(); block = block->newer) {
      const bool whole = block->previous == nullptr && block->next == nullptr;
      if (!whole || (too_large && block->bytes <= watermark_)) continue;
      ++stats_.watermark_frees;
      return detach(block);
    }
  }
  return {};
}

void Pool::shed() {
  std::lock_guard growth(growth_mutex_);
  for (;;) {
    PoolSegment segment;
    {
      std::lock_guard lock(mutex_);
      if (stats_.cached_bytes + stats_.in_flight_bytes > watermark_) poll();
      segment = detach_above_watermark();
    }
    if (segment.base == nullptr) return;
    release(segment);
  }
}

// Returns a point to watch for each lane that may exceed the watermark and is not watched yet. When the point
// is reached, the pool looks again. It then also finds blocks that have moved to another lane, so some point
// is watched until nothing is in flight.
std::vector<Pool::Watched> Pool::lanes_to_watch() {
  std::vector<Watched> watched;
  if (stats_.cached_bytes + stats_.in_flight_bytes <= watermark_) return watched;
  const auto add = [&](PoolLane& lane) {
    if (lane.watched || lane.empty()) return;
    const PoolClock& clock = lane.newest()->clock;
    const auto pending =
        std::find_if(clock.begin(), clock.end(), [](const PoolTick& t) { return !t.reached(); });
    // If all points have been reached in the meantime, the callback runs at once.
    watched.push_back({lane.stream(), pending != clock.end() ? pending->point : clock.back().point});
    lane.watched = true;
  };
  for (const auto& [stream, lane] : lanes_) add(*lane);
  add(mixed_);
  return watched;
}

void Pool::watch(std::shared_ptr<Watch> state, const Watched& lane) {
  lane.point->when_reached([state, id = lane.lane] {
    std::lock_guard lock(state->mutex);
    if (state->pool != nullptr) state->pool->work_ended(id);
  });
}

void Pool::work_ended(uint64_t lane_id) {
  {
    std::lock_guard lock(mutex_);
    if (lane_id == 0) {
      mixed_.watched = false;
    } else if (const auto lane = lanes_.find(lane_id); lane != lanes_.end()) {
      lane->second->watched = false;
    }
  }
  keep_watermark(MayWait::no);
}

}  // namespace mx
