#include "engine/device/pool_lane.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace mx {

// Sizes in units of 64 bytes: exact up to 8 units, then eight bins to each power of two.
size_t PoolLane::bin_of(size_t bytes) {
  const size_t units = bytes / 64;
  if (units < 8) return units;
  const size_t log = static_cast<size_t>(std::bit_width(units)) - 1;
  return std::min(kBins - 1, (log - 2) * 8 + ((units >> (log - 3)) & 7));
}

void PoolLane::insert(PoolBlock* block, PoolBlock* before) {
  block->lane = this;
  block->bin = bin_of(block->bytes);
  Bins& bins = bins_[block->segment_class];
  PoolBlock*& head = bins.heads[block->bin];
  block->bin_previous = nullptr;
  block->bin_next = head;
  if (head != nullptr) head->bin_previous = block;
  head = block;
  bins.occupied[block->bin / 64] |= uint64_t{1} << (block->bin % 64);

  block->newer = before;
  block->older = before != nullptr ? before->older : newest_;
  (block->older != nullptr ? block->older->newer : oldest_) = block;
  (before != nullptr ? before->older : newest_) = block;
}

void PoolLane::remove(PoolBlock* block) {
  Bins& bins = bins_[block->segment_class];
  if (block->bin_next != nullptr) block->bin_next->bin_previous = block->bin_previous;
  if (block->bin_previous != nullptr) {
    block->bin_previous->bin_next = block->bin_next;
  } else {
    bins.heads[block->bin] = block->bin_next;
    if (block->bin_next == nullptr) bins.occupied[block->bin / 64] &= ~(uint64_t{1} << (block->bin % 64));
  }
  (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
  (block->newer != nullptr ? block->newer->older : newest_) = block->older;
  block->lane = nullptr;
  block->bin_previous = block->bin_next = block->older = block->newer = nullptr;
}

PoolBlock* PoolLane::find(size_t bytes, int segment_class) const {
  const Bins& bins = bins_[segment_class];
  const size_t first = bin_of(bytes);
  // A block can be too small only in the request's own bin. The last bin has no upper end, so this holds for
  // it as well.
  for (PoolBlock* block = bins.heads[first]; block != nullptr; block = block->bin_next) {
    if (block->bytes >= bytes) return block;
  }
  for (size_t bin = first + 1; bin < kBins;) {
    const uint64_t word = bins.occupied[bin / 64] >> (bin % 64);
    if (word != 0) return bins.heads[bin + static_cast<size_t>(std::countr_zero(word))];
    bin = (bin / 64 + 1) * 64;
  }
  return nullptr;
}

// Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4); blocks are 64 bytes apart at least.
size_t PoolTable::bucket_of(const void* address) const {
  const uint64_t hash = (reinterpret_cast<uintptr_t>(address) / 64) * 0x9E3779B97F4A7C15u;
  return hash >> (64 - std::countr_zero(buckets_.size()));
}

void PoolTable::insert(PoolBlock* block) {
  if (size_ == buckets_.size()) {
    std::vector<PoolBlock*> old(2 * buckets_.size());
    old.swap(buckets_);
    for (PoolBlock* head : old) {
      while (head != nullptr) {
        PoolBlock* next = head->next_used;
        PoolBlock*& bucket = buckets_[bucket_of(head->base)];
        head->next_used = std::exchange(bucket, head);
        head = next;
      }
    }
  }
  PoolBlock*& bucket = buckets_[bucket_of(block->base)];
  block->next_used = std::exchange(bucket, block);
  ++size_;
}

PoolBlock* PoolTable::find(const void* address) const {
  PoolBlock* block = buckets_[bucket_of(address)];
  while (block != nullptr && block->base != address) block = block->next_used;
  return block;
}

PoolBlock* PoolTable::take(const void* address) {
  PoolBlock** link = &buckets_[bucket_of(address)];
  while (*link != nullptr && (*link)->base != address) link = &(*link)->next_used;
  PoolBlock* block = *link;
  if (block == nullptr) return nullptr;
  *link = block->next_used;
  --size_;
  return block;
}

}  // namespace mx
