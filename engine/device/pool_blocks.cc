// The pool's lists: in which lane a free block is, when blocks merge, and what happens to the blocks of a
// stream that is destroyed.
#include <algorithm>

#include "engine/base/log.h"
#include "engine/device/pool.h"
#include "engine/device/pool_asan.h"

namespace mx {

// Queries the points without blocking. The points of one stream are reached in the order of the calls of
// free(), so the first point that is not reached ends the scan of its lane.
void Pool::poll() {
  const auto reached = [](const PoolBlock* block) {
    return std::all_of(block->clock.begin(), block->clock.end(),
                       [](const PoolTick& t) { return t.reached(); });
  };
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    PoolLane& lane = *it->second;
    while (!lane.empty() && reached(lane.oldest())) {
      PoolBlock* block = lane.oldest();
      remove(block);
      settle(block);
    }
    it = lane.closed && lane.empty() ? lanes_.erase(it) : std::next(it);
  }
  for (PoolBlock* block = mixed_.oldest(); block != nullptr;) {
    PoolBlock* newer = block->newer;
    const size_t before = block->clock.size();
    std::erase_if(block->clock, [](const PoolTick& tick) { return tick.reached(); });
    if (block->clock.size() < before && block->clock.size() < 2) {
      remove(block);
      put(block);
    }
    block = newer;
  }
}

// Inserts a block that is in no list into the lane that its clock selects.
void Pool::put(PoolBlock* block) {
  if (block->clock.empty()) {
    settle(block);
    return;
  }
  PoolLane& lane = block->clock.size() == 1 ? lane_of(block->clock.front().stream) : mixed_;
  if (&lane != &mixed_) {
    if (PoolBlock* previous = block->previous; previous != nullptr && previous->lane == &lane) {
      remove(previous);
      absorb_next(previous);
      block = previous;
    }
    if (block->next != nullptr && block->next->lane == &lane) absorb_next(block);
  }
  insert(lane, block);
}

void Pool::settle(PoolBlock* block) {
  block->clock.clear();
  pool_asan::forbid(block->base, block->bytes, options_.host_accessible);
  if (PoolBlock* previous = block->previous; previous != nullptr && previous->lane == &settled_) {
    remove(previous);
    absorb_next(previous);
    block = previous;
  }
  if (block->next != nullptr && block->next->lane == &settled_) absorb_next(block);
  insert(settled_, block);
}

// Merges the next block and its points into a block that is in no list.
void Pool::absorb_next(PoolBlock* block) {
  PoolBlock* next = block->next;
  if (next->lane != nullptr) remove(next);
  for (const PoolTick& tick : next->clock) {
    const auto mine = std::find_if(block->clock.begin(), block->clock.end(),
                                   [&](const PoolTick& t) { return t.stream == tick.stream; });
    if (mine == block->clock.end()) {
      block->clock.push_back(tick);
    } else if (mine->sequence < tick.sequence) {
      *mine = tick;
    }
  }
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  recycle(next);
}

void Pool::insert(PoolLane& lane, PoolBlock* block, PoolBlock* before) {
  lane.insert(block, before);
  if (&lane != &settled_) {
    stats_.in_flight_bytes += block->bytes;
    return;
  }
  stats_.cached_bytes += block->bytes;
  if (block->previous == nullptr && block->next == nullptr) unused_bytes_ += block->bytes;
}

void Pool::remove(PoolBlock* block) {
  if (block->lane != &settled_) {
    stats_.in_flight_bytes -= block->bytes;
  } else {
    stats_.cached_bytes -= block->bytes;
    if (block->previous == nullptr && block->next == nullptr) unused_bytes_ -= block->bytes;
  }
  block->lane->remove(block);
}

PoolLane& Pool::lane_of(uint64_t stream) {
  std::unique_ptr<PoolLane>& lane = lanes_[stream];
  if (lane == nullptr) lane = std::make_unique<PoolLane>(stream);
  return *lane;
}

PoolBlock* Pool::new_block() {
  if (spare_.empty()) return &storage_.emplace_back();
  PoolBlock* block = spare_.back();
  spare_.pop_back();
  return block;
}

void Pool::recycle(PoolBlock* block) {
  PoolClock clock = std::move(block->clock);
  clock.clear();
  *block = PoolBlock{};
  block->clock = std::move(clock);  // keeps its memory for the next use
  spare_.push_back(block);
}

void Pool::forget(Stream& stream) noexcept try {
  std::lock_guard users_lock(users_mutex_);
  bool noted = false;
  {
    std::lock_guard lock(mutex_);
    for (const PoolBlock* block : noted_) {
      noted |= std::find(block->users.begin(), block->users.end(), &stream) != block->users.end();
    }
    if (auto lane = lanes_.find(stream.id()); lane != lanes_.end()) lane->second->closed = true;
  }
  if (!noted) return;
  const PoolTick tick{stream.id(), ++sequence_, stream.mark()};
  std::lock_guard lock(mutex_);
  for (auto it = noted_.begin(); it != noted_.end();) {
    PoolBlock* block = *it;
    if (std::erase(block->users, &stream) > 0) {
      std::erase_if(block->clock, [&](const PoolTick& t) { return t.stream == tick.stream; });
      block->clock.push_back(tick);
    }
    it = block->users.empty() ? noted_.erase(it) : std::next(it);
  }
} catch (...) {
  log(LogLevel::error, "[stream] could not remove a destroyed stream from the memory pool of ", context_,
      ": ", current_exception_text());
}

}  // namespace mx
