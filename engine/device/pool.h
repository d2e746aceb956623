// The caching allocator of every backend: stream-ordered, size-bucketed, with splitting and coalescing.
//
// Segments come from the backend through a MemorySource, in two classes (small and large requests) so that
// long-lived small blocks do not break up large ones. A segment is a chain of blocks in address order; a
// request takes a free block, splits off what it does not need, and a freed block merges with its free
// neighbours.
//
// Clocks. A freed block carries, for each stream that used it, a point in that stream's order (a mark made
// at free()). Until all are reached the block is *in flight*; it lies in the lane of its stream (or in the
// lane of blocks with several). A request for stream S looks
//   1. in S's own lane, because S's later work is ordered after the block's earlier use in any case;
//   2. among settled blocks, whose points are all reached;
//   3. again after polling the points of every lane, and joining S's blocks with settled neighbours;
//   4. at the backend, for a new segment;
//   5. if the backend has no more memory: at the backend again after trim(), then among all blocks in flight.
//      In the last case S's later work is made to wait for the block's points (MemoryStats::stream_waits).
// The host never blocks on a stream, and no block is handed out before its last use has ended. A request
// without a stream takes settled blocks only. A block that is reused while in flight keeps its old points
// until its own free() covers them. Otherwise a free() without a stream would make the block settled too
// early.
//
// Locks. The pool's lock is held for list work and non-blocking polls only. Reserving and releasing segments
// happens under a second lock that only requests without a fitting block take.
//
// Watermark. Cached memory (memory that no request and no work uses) stays below PoolOptions::watermark. If a
// free() leaves more than that cached, the pool returns unused segments to the backend. It does the same when
// the last work on a block in flight ends. If the source's release() waits for its device, the pool postpones
// the return to the next allocate(). Free memory that shares a segment with a block in use cannot be
// returned; it may exceed the watermark.
//
// Separate segments. With PoolOptions::separate each request gets a segment of its own, of exactly its size,
// which is returned when its last use has ended. So tools that know the backend's segments, such as
// compute-sanitizer, see the bounds of each request. It costs a call of the backend for each request.
//
// Capture. On a stream that captures a graph, the pool hands out settled blocks only, and the graph owns them
// (capture.h): they return to the pool when the graph is destroyed and its launches have ended. A client that
// needs a pool of its own makes a second Pool on the same source; two pools never share cached blocks.
// Under AddressSanitizer settled blocks of host-accessible memory are poisoned, and requests get a redzone.
//
// Thread-safety: safe from any thread; see device.h for calls that name a stream.
// Sources: best fit by two-level size classes is TLSF (Masmano et al., 2004); blocks that remember the
// streams of their use are the idea of PyTorch's CUDA caching allocator; the lanes and the waits are our own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/pool_lane.h"

namespace mx {

/// The source of a pool's segments. Safe from any thread.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  /// Returns `bytes` of memory, aligned to 4096 bytes, or null if there is not so much. Throws DeviceError.
  virtual void* reserve(size_t bytes) = 0;
  virtual void release(void* segment, size_t bytes) noexcept = 0;
  virtual size_t limit_bytes() const noexcept = 0;
  /// Returns true if release() may wait for work of a device. The pool then calls it only where it may wait.
  virtual bool release_may_wait() const noexcept { return false; }

  /// Called by free() before it takes the points. The block is unused once the work submitted so far to all
  /// `users` has ended (at once if there are none). The block also waits for work that this call appends to
  /// these streams.
  virtual void retire(void* block, size_t bytes, std::span<Stream* const> users) {
    (void)block, (void)bytes, (void)users;
  }
};

struct PoolOptions {
  size_t alignment = 64;            ///< of every address; a power of two, at least 64
  size_t small_limit = 512 << 10;   ///< larger requests go to large segments
  size_t small_segment = 4 << 20;   ///< bytes of a segment for small requests
  size_t large_segment = 32 << 20;  ///< for large requests up to half of it; larger ones get an exact segment
  bool host_accessible = false;     ///< the host may access free memory (to poison it under ASan)
  size_t watermark = SIZE_MAX;      ///< upper limit of cached bytes
  bool separate = false;            ///< a segment for each request; nothing is cached
};

/// Returns whether MX_POOL_SEPARATE is 1.
bool separate_from_environment();

/// Returns the watermark that MX_POOL_WATERMARK sets: bytes ("1500000"), or binary units ("512K", "512M",
/// "2G", "1T"), or "unlimited". Returns `otherwise` if it is not set. Throws InvalidArgument for anything
/// else.
size_t watermark_from_environment(size_t otherwise);

class Pool {
 public:
  Pool(Context context, MemorySource& source, PoolOptions options = {});
  /// Releases every segment. Nothing may be in use or in flight.
  ~Pool();

  /// As Device::allocate, free and note_use.
  void* allocate(size_t bytes, Stream* stream);
  void free(void* pointer, Stream* stream) noexcept;
  void note_use(void* pointer, Stream& stream);

  MemoryStats stats() const;
  void reset_peak();
  /// Releases the segments that contain no block in use or in flight; returns their bytes.
  size_t trim();
  /// Sets the watermark and returns cached memory above it to the backend at once.
  void set_watermark(size_t bytes);

 private:
  friend void forget_stream(Stream& stream) noexcept;
  enum Class { kSmall, kLarge };
  enum class Reach { own, any };  // which free blocks a joined run may contain: this stream's, or all

  // Lets the callbacks of points find out whether the pool still exists.
  struct Watch {
    std::recursive_mutex mutex;  // taken before growth_mutex_; a reached point calls back at once
    Pool* pool;
  };
  struct Watched {
    uint64_t lane;
    std::shared_ptr<EventPoint> point;
  };
  enum class MayWait { no, yes };

  struct Want {
    size_t asked;  // bytes of the request
    size_t bytes;  // with the redzone, rounded up
    Class segment_class;
    uint64_t stream;  // id, or 0
  };

  Want want(size_t bytes, const Stream* stream) const;
  PoolBlock* take(const Want& want);
  PoolBlock* take_after_poll(const Want& want);
  PoolBlock* take_run(const Want& want, Reach reach);
  PoolBlock* take_from(PoolLane& lane, const Want& want);
  PoolBlock* split(PoolBlock* block, const Want& want, PoolLane* lane, PoolBlock* before);
  void* hand_out(PoolBlock* block, const Want& want);
  void* grow(const Want& want, PoolClock& waits);
  void* reserve(const Want& want, size_t& bytes);
  PoolBlock* add_segment(void* base, size_t bytes, Class segment_class);
  std::vector<PoolSegment> detach_unused();
  PoolSegment detach(PoolBlock* whole);
  void release(const PoolSegment& segment);
  [[noreturn]] void throw_exhausted(const Want& want) const;

  bool above_watermark() const { return stats_.cached_bytes > watermark_ && unused_bytes_ > 0; }
  PoolSegment detach_above_watermark();
  void keep_watermark(MayWait may_wait) noexcept;
  void shed();
  std::vector<Watched> lanes_to_watch();
  void work_ended(uint64_t lane);
  static void watch(std::shared_ptr<Watch> state, const Watched& lane);

  void poll();
  void settle(PoolBlock* block);
  void put(PoolBlock* block);
  void insert(PoolLane& lane, PoolBlock* block, PoolBlock* before = nullptr);
  void absorb_next(PoolBlock* block);
  void remove(PoolBlock* block);
  PoolLane& lane_of(uint64_t stream);
  PoolBlock* new_block();
  void recycle(PoolBlock* block);
  void forget(Stream& stream) noexcept;

  const Context context_;
  MemorySource& source_;
  const PoolOptions options_;

  std::mutex growth_mutex_;  // taken before mutex_; held while the backend reserves and releases
  std::mutex users_mutex_;   // taken before mutex_; held while streams are marked
  uint64_t sequence_ = 0;    // guarded by users_mutex_
  std::atomic<bool> shed_due_{false};
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  mutable std::mutex mutex_;

  // Guarded by mutex_.
  PoolTable used_;
  std::unordered_set<PoolBlock*> noted_;  // in use, with users
  PoolLane settled_;
  PoolLane mixed_;  // in flight on several streams
  std::unordered_map<uint64_t, std::unique_ptr<PoolLane>> lanes_;
  std::unordered_map<PoolBlock*, PoolSegment> segments_;  // by their first block
  std::deque<PoolBlock> storage_;
  std::vector<PoolBlock*> spare_;
  std::atomic<size_t> watermark_;  // also read without the lock
  size_t unused_bytes_ = 0;        // of cached_bytes, in segments that hold nothing else
  MemoryStats stats_;
};

/// Every backend's stream calls this first in its destructor. No pool touches the stream afterwards. Blocks
/// that note_use() tied to the stream wait for the work submitted to it so far.
void forget_stream(Stream& stream) noexcept;

}  // namespace mx
