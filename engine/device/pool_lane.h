// The pool's parts: blocks, lanes of free blocks that become usable in the same way, and the table of blocks
// in use. Private to the pool. The links are inside the blocks, so that none of this allocates in steady
// state.
//
// Not thread-safe: the pool's lock guards them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/device.h"

namespace mx {

class PoolLane;

/// One stream's entry in a block's clock. Of two ticks of one stream, the larger sequence is the later point.
struct PoolTick {
  uint64_t stream;
  uint64_t sequence;
  std::shared_ptr<EventPoint> point;

  bool reached() const { return point->query() != EventStatus::pending; }
};

using PoolClock = std::vector<PoolTick>;

struct PoolSegment {
  char* base = nullptr;
  size_t bytes = 0;
};

struct PoolBlock {
  char* base = nullptr;
  size_t bytes = 0;
  size_t asked = 0;  // bytes of the request that the block serves; 0 if it is free
  int segment_class = 0;
  PoolBlock* previous = nullptr;  // in the segment, by address
  PoolBlock* next = nullptr;
  uint64_t owner = 0;          // id of the stream it was handed out to, or 0
  PoolClock clock;             // free: points to reach before reuse. In use: points of earlier uses.
  std::vector<Stream*> users;  // named by note_use()

  PoolLane* lane = nullptr;  // null when in use
  size_t bin = 0;
  PoolBlock* bin_previous = nullptr;
  PoolBlock* bin_next = nullptr;
  PoolBlock* older = nullptr;  // in the lane's order of free()
  PoolBlock* newer = nullptr;
  PoolBlock* next_used = nullptr;  // in the bucket of the table of blocks in use
};

/// Free blocks in bins by size, and in the order of their free().
class PoolLane {
 public:
  explicit PoolLane(uint64_t stream) : stream_(stream) {}

  /// The stream that all blocks' clocks name; 0 for settled and for mixed blocks.
  uint64_t stream() const { return stream_; }
  PoolBlock* oldest() const { return oldest_; }
  PoolBlock* newest() const { return newest_; }
  bool empty() const { return oldest_ == nullptr; }

  void insert(PoolBlock* block, PoolBlock* before = nullptr);
  void remove(PoolBlock* block);
  /// Returns a block of at least `bytes`, about the smallest one that fits; null if there is none.
  PoolBlock* find(size_t bytes, int segment_class) const;

  bool closed = false;   // the stream is destroyed: the lane is removed once it is empty
  bool watched = false;  // a callback will tell the pool when the lane's work has ended

 private:
  static constexpr size_t kBins = 384;
  static constexpr size_t kWords = kBins / 64;
  static size_t bin_of(size_t bytes);

  struct Bins {
    std::array<PoolBlock*, kBins> heads{};
    std::array<uint64_t, kWords> occupied{};
  };

  const uint64_t stream_;
  Bins bins_[2];
  PoolBlock* oldest_ = nullptr;
  PoolBlock* newest_ = nullptr;
};

/// Blocks in use, by address.
class PoolTable {
 public:
  void insert(PoolBlock* block);
  PoolBlock* find(const void* address) const;
  /// Removes and returns the block; null if there is none.
  PoolBlock* take(const void* address);

 private:
  size_t bucket_of(const void* address) const;

  std::vector<PoolBlock*> buckets_ = std::vector<PoolBlock*>(256);  // a power of two
  size_t size_ = 0;
};

}  // namespace mx
