#include "engine/device/pool.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/device/capture.h"
#include "engine/device/pool_asan.h"

namespace mx {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLargeRest = 64 << 10;  // the smallest remainder that is split off a large block

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Merges two clocks: keeps the later tick of each stream.
void add_tick(PoolClock& clock, const PoolTick& tick) {
  for (PoolTick& mine : clock) {
    if (mine.stream != tick.stream) continue;
    if (mine.sequence < tick.sequence) mine = tick;
    return;
  }
  clock.push_back(tick);
}

void drop_reached(PoolClock& clock) {
  std::erase_if(clock, [](const PoolTick& tick) { return tick.reached(); });
}

struct Pools {
  std::mutex mutex;
  std::vector<Pool*> all;
};

Pools& pools() {
  static Pools* instance = new Pools;
  return *instance;
}

}  // namespace

Pool::Pool(Context context, MemorySource& source, PoolOptions options)
    : context_(context),
      source_(source),
      options_(options),
      settled_(0),
      mixed_(0),
      watermark_(options.separate ? 0 : options.watermark) {
  watch_->pool = this;
  MX_CHECK(options.alignment >= 64 && (options.alignment & (options.alignment - 1)) == 0, InvalidArgument,
           "[pool] expected an alignment of a power of two of at least 64, got ", options.alignment);
  std::lock_guard lock(pools().mutex);
  pools().all.push_back(this);
}

Pool::~Pool() {
  {
    std::lock_guard lock(pools().mutex);
    std::erase(pools().all, this);
  }
  {
    std::lock_guard lock(watch_->mutex);
    watch_->pool = nullptr;
  }
  for (const auto& [first, segment] : segments_) {
    pool_asan::allow(segment.base, segment.bytes, options_.host_accessible);
    source_.release(segment.base, segment.bytes);
  }
}

Pool::Want Pool::want(size_t bytes, const Stream* stream) const {
  const size_t redzone = options_.host_accessible ? pool_asan::kRedzone : 0;
  const Class segment_class = bytes <= options_.small_limit ? kSmall : kLarge;
  const size_t step = segment_class == kSmall ? options_.alignment : std::max(options_.alignment, kPage);
  Want want{bytes, round_up(bytes + redzone, step), segment_class, stream != nullptr ? stream->id() : 0};
  if (bytes > (size_t{1} << 48)) {  // before sums of it overflow
    std::lock_guard lock(mutex_);
    throw_exhausted(want);
  }
  return want;
}

void* Pool::allocate(size_t bytes, Stream* stream) {
  if (bytes == 0) return nullptr;
  if (stream != nullptr && stream->capturing()) [[unlikely]]
    return stream->graph_memory()->allocate(*this, bytes);
  if (shed_due_.load(std::memory_order_relaxed)) [[unlikely]] {
    if (shed_due_.exchange(false)) keep_watermark(MayWait::yes);
  }
  const Want want = this->want(bytes, stream);
  {
    std::lock_guard lock(mutex_);
    PoolBlock* block = take(want);
    if (block == nullptr) block = take_after_poll(want);
    if (block != nullptr) {
      ++stats_.cache_hits;
      return hand_out(block, want);
    }
  }
  PoolClock waits;
  void* pointer = grow(want, waits);
  try {
    for (PoolTick& tick : waits) stream->wait_point(std::move(tick.point));
  } catch (...) {
    free(pointer, nullptr);  // the block still carries the points
    throw;
  }
  keep_watermark(MayWait::yes);  // a new segment is larger than the request
  return pointer;
}

PoolBlock* Pool::take(const Want& want) {
  if (options_.separate) return nullptr;
  if (want.stream != 0) {
    if (auto lane = lanes_.find(want.stream); lane != lanes_.end()) {
      if (PoolBlock* block = take_from(*lane->second, want)) return block;
    }
  }
  return take_from(settled_, want);
}

PoolBlock* Pool::take_after_poll(const Want& want) {
  poll();
  if (PoolBlock* block = take(want)) return block;
  return want.stream != 0 && !options_.separate ? take_run(want, Reach::own) : nullptr;
}

PoolBlock* Pool::take_from(PoolLane& lane, const Want& want) {
  PoolBlock* block = lane.find(want.bytes, want.segment_class);
  if (block == nullptr) return nullptr;
  PoolBlock* before = block->newer;
  remove(block);
  return split(block, want, &lane, before);
}

// Merges neighbouring free blocks that are large enough together, and returns the merged block.
PoolBlock* Pool::take_run(const Want& want, Reach reach) {
  for (const auto& [head, segment] : segments_) {
    if (segment.bytes < want.bytes) continue;
    if (reach == Reach::own && head->segment_class != want.segment_class) continue;
    PoolBlock* first = nullptr;
    size_t bytes = 0;
    for (PoolBlock* block = head; block != nullptr; block = block->next) {
      const bool fits =
          block->lane != nullptr && (reach == Reach::any || block->lane == &settled_ ||
                                     (want.stream != 0 && block->lane->stream() == want.stream));
      if (!fits) {
        first = nullptr;
        bytes = 0;
        continue;
      }
      if (first == nullptr) first = block;
      bytes += block->bytes;
      if (bytes < want.bytes) continue;
      remove(first);
      while (first->bytes < want.bytes) absorb_next(first);
      drop_reached(first->clock);
      return split(first, want, nullptr, nullptr);
    }
  }
  return nullptr;
}

// Splits off the part of the block that `want` does not need. It goes to `lane`, in the place of the block,
// or to the lane that its clock selects.
PoolBlock* Pool::split(PoolBlock* block, const Want& want, PoolLane* lane, PoolBlock* before) {
  const size_t rest_bytes = block->bytes - want.bytes;
  if (rest_bytes < (block->segment_class == kSmall ? options_.alignment : kLargeRest)) return block;
  PoolBlock* rest = new_block();
  rest->base = block->base + want.bytes;
  rest->bytes = rest_bytes;
  rest->segment_class = block->segment_class;
  rest->clock = block->clock;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->bytes = want.bytes;
  if (lane != nullptr) {
    insert(*lane, rest, before);
  } else {
    put(rest);
  }
  return block;
}

void* Pool::hand_out(PoolBlock* block, const Want& want) {
  block->asked = want.asked;
  block->owner = want.stream;
  used_.insert(block);
  ++stats_.allocations;
  stats_.in_use_bytes += want.asked;
  stats_.peak_in_use_bytes = std::max(stats_.peak_in_use_bytes, stats_.in_use_bytes);
  pool_asan::allow(block->base, block->bytes, options_.host_accessible);
  // Work in flight may still use the bytes that this request does not.
  if (block->clock.empty()) {
    pool_asan::forbid(block->base + want.asked, block->bytes - want.asked, options_.host_accessible);
  }
  return block->base;
}

// Called if no free block fits. Returns the address and sets `waits` to the points that the stream must wait
// for.
void* Pool::grow(const Want& want, PoolClock& waits) {
  std::lock_guard growth(growth_mutex_);
  {
    std::lock_guard lock(mutex_);
    if (PoolBlock* block = take_after_poll(want)) {  // another thread may have grown meanwhile
      ++stats_.cache_hits;
      return hand_out(block, want);
    }
  }
  size_t bytes = 0;
  void* base = reserve(want, bytes);
  std::lock_guard lock(mutex_);
  if (base != nullptr) {
    PoolBlock* block = add_segment(base, bytes, want.segment_class);
    if (options_.separate)
      remove(block);
    else
      block = take_from(settled_, want);
    return hand_out(block, want);
  }
  poll();
  Want other = want;
  other.segment_class = want.segment_class == kSmall ? kLarge : kSmall;
  PoolBlock* block = take(want);
  if (block == nullptr) block = take(other);
  if (block == nullptr && want.stream != 0 && !options_.separate) {
    block = take_run(want, Reach::any);
    if (block != nullptr) {
      for (const PoolTick& tick : block->clock) {
        if (tick.stream != want.stream) waits.push_back(tick);
      }
      stats_.stream_waits += waits.size();
    }
  }
  if (block == nullptr) throw_exhausted(want);
  ++stats_.cache_hits;
  return hand_out(block, want);
}

// Reserves a segment for `want`. If the backend has no more memory, it first returns cached segments. Returns
// null if that is not enough.
void* Pool::reserve(const Want& want, size_t& bytes) {
  if (options_.separate) {
    bytes = want.bytes;  // of the block; the memory ends with the request
    return source_.reserve(want.asked);
  }
  const size_t exact = round_up(want.bytes, std::max(kPage, options_.alignment));
  const size_t usual = want.segment_class == kSmall ? options_.small_segment
                       : want.bytes <= options_.large_segment / 2
                           ? options_.large_segment
                           : round_up(want.bytes, std::min<size_t>(options_.large_segment, 2 << 20));
  // Segments must be small compared with the watermark. A segment that cannot stay cached would be reserved
  // and released again and again.
  bytes = std::max(std::min(usual, watermark_ / 4 / kPage * kPage), exact);
  if (void* base = source_.reserve(bytes)) return base;
  if (bytes != exact) {
    bytes = exact;
    if (void* base = source_.reserve(bytes)) return base;
  }
  std::vector<PoolSegment> unused;
  {
    std::lock_guard lock(mutex_);
    poll();
    unused = detach_unused();
  }
  for (const PoolSegment& segment : unused) release(segment);
  return unused.empty() ? nullptr : source_.reserve(bytes);
}

PoolBlock* Pool::add_segment(void* base, size_t bytes, Class segment_class) {
  PoolBlock* block = new_block();
  block->base = static_cast<char*>(base);
  block->bytes = bytes;
  block->segment_class = segment_class;
  segments_.emplace(block, PoolSegment{block->base, bytes});
  ++stats_.backend_allocations;
  stats_.reserved_bytes += bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  settle(block);
  return block;
}

std::vector<PoolSegment> Pool::detach_unused() {
  std::vector<PoolSegment> unused;
  for (auto it = segments_.begin(); it != segments_.end();) {
    PoolBlock* block = it->first;
    if (block->lane != &settled_ || block->next != nullptr) {
      ++it;
      continue;
    }
    ++it;
    unused.emplace_back();
    unused.back() = detach(block);
  }
  return unused;
}

PoolSegment Pool::detach(PoolBlock* whole) {
  const auto it = segments_.find(whole);
  const PoolSegment segment = it->second;
  stats_.reserved_bytes -= segment.bytes;
  ++stats_.backend_frees;
  segments_.erase(it);
  remove(whole);
  recycle(whole);
  return segment;
}

void Pool::release(const PoolSegment& segment) {
  pool_asan::allow(segment.base, segment.bytes, options_.host_accessible);
  source_.release(segment.base, segment.bytes);
}

void forget_stream(Stream& stream) noexcept {
  std::lock_guard lock(pools().mutex);
  for (Pool* pool : pools().all) pool->forget(stream);
}

size_t Pool::trim() {
  std::lock_guard growth(growth_mutex_);
  std::vector<PoolSegment> unused;
  {
    std::lock_guard lock(mutex_);
    poll();
    unused = detach_unused();
  }
  size_t bytes = 0;
  for (const PoolSegment& segment : unused) {
    release(segment);
    bytes += segment.bytes;
  }
  return bytes;
}

void Pool::throw_exhausted(const Want& want) const {
  throw OutOfMemory(
      detail::concat("[", context_, "] expected free memory for ", want.asked, " bytes, got none: in use ",
                     stats_.in_use_bytes, ", in flight ", stats_.in_flight_bytes, ", reserved ",
                     stats_.reserved_bytes, ", limit ", source_.limit_bytes(),
                     want.stream == 0 && stats_.in_flight_bytes > 0
                         ? " (memory in flight can only be reused by requests that name a stream)"
                         : ""));
}

void Pool::note_use(void* pointer, Stream& stream) {
  if (pointer == nullptr || stream.capturing()) return;
  std::scoped_lock lock(users_mutex_, mutex_);
  PoolBlock* block = used_.find(pointer);
  MX_CHECK(block != nullptr, InvalidArgument, "[note_use] expected the address of an allocation of ",
           context_, ", got ", pointer);
  std::vector<Stream*>& users = block->users;
  if (std::find(users.begin(), users.end(), &stream) != users.end()) return;
  users.push_back(&stream);
  noted_.insert(block);
}

void Pool::free(void* pointer, Stream* stream) noexcept try {
  if (pointer == nullptr) return;
  if (stream != nullptr && stream->capturing()) [[unlikely]] {
    stream->graph_memory()->hold(*this, pointer);
    return;
  }
  std::unique_lock users_lock(users_mutex_, std::defer_lock);
  if (stream != nullptr) users_lock.lock();
  PoolBlock* block = nullptr;
  bool covered = false;  // this use's points are at least as late as those of the earlier uses
  {
    std::lock_guard lock(mutex_);
    block = used_.take(pointer);
    if (block == nullptr) {
      log(LogLevel::error, "[free] expected memory in use of ", context_, ", got ", pointer, "; ignored");
      return;
    }
    stats_.in_use_bytes -= block->asked;
    block->asked = 0;
    if (!block->users.empty()) noted_.erase(block);
  }
  // The block is in no list now, so no other thread can touch it.
  std::vector<Stream*>& users = block->users;
  if (stream == nullptr) {
    users.clear();
  } else if (std::find(users.begin(), users.end(), stream) == users.end()) {
    users.push_back(stream);
  }
  drop_reached(block->clock);
  if (!users.empty() || block->clock.empty()) source_.retire(block->base, block->bytes, users);
  for (const Stream* user : users) covered |= user->id() == block->owner;
  if (covered) block->clock.clear();
  for (Stream* user : users) add_tick(block->clock, {user->id(), ++sequence_, user->mark()});
  users.clear();
  drop_reached(block->clock);
  if (stream != nullptr) users_lock.unlock();
  {
    std::lock_guard lock(mutex_);
    put(block);
    if (stats_.cached_bytes + stats_.in_flight_bytes <= watermark_) [[likely]]
      return;
  }
  keep_watermark(MayWait::no);
} catch (...) {
  log(LogLevel::error, "[free] could not free a block of ", context_, ": ", current_exception_text());
}

MemoryStats Pool::stats() const {
  std::lock_guard lock(mutex_);
  MemoryStats stats = stats_;
  stats.watermark_bytes = watermark_;
  return stats;
}

void Pool::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.peak_in_use_bytes = stats_.in_use_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

}  // namespace mx
