// The memory of a virtual device: one range of addresses that the host may not touch, and another, the
// kernels' alias, through which tasks reach the same pages of a memory file.
//
// Thread-safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>

#include "engine/device/pool.h"

namespace mx {

/// Fresh and freed bytes of a virtual device hold this: as a float or a double, a huge negative number that
/// no sensible program computes; as an index, one out of range.
constexpr unsigned char kVirtualPoison = 0xFB;

class VirtualMemory final : public MemorySource {
 public:
  /// Reserves address space, not memory. Throws DeviceError when that fails.
  explicit VirtualMemory(size_t capacity_bytes);
  ~VirtualMemory() override;

  /// Null beyond the capacity. The segment is poisoned.
  void* reserve(size_t bytes) override;
  void release(void* segment, size_t bytes) noexcept override;
  size_t limit_bytes() const noexcept override { return capacity_.load(std::memory_order_relaxed); }

  /// Poisons the block once the work of `users` has ended: the last of them to get there does it.
  void retire(void* block, size_t bytes, std::span<Stream* const> users) override;

  /// At most the address space that was reserved at the start.
  void set_capacity(size_t bytes);

  /// What to add to a device address to get the kernels' alias.
  std::ptrdiff_t alias_offset() const noexcept { return alias_ - base_; }
  bool contains(const void* address, size_t bytes) const noexcept;

 private:
  void poison(void* block, size_t bytes) noexcept;

  const size_t range_;
  int file_ = -1;
  char* base_ = nullptr;
  char* alias_ = nullptr;
  std::atomic<size_t> capacity_;

  std::mutex mutex_;
  size_t reserved_ = 0;
  std::map<size_t, size_t> free_;  // offset -> bytes, no two adjacent
};

}  // namespace mx
