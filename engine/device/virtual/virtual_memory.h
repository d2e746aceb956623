// The memory of a virtual device: one range of addresses that the host cannot access, and another, the
// kernels' alias, through which tasks access the same pages of a memory file.
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

/// The value of fresh and freed bytes of a virtual device. Read as a float or a double, it is a huge negative
/// number that no sensible program computes; read as an index, it is out of range.
constexpr unsigned char kVirtualPoison = 0xFB;

class VirtualMemory final : public MemorySource {
 public:
  /// Reserves address space, not memory. Throws DeviceError if that fails.
  explicit VirtualMemory(size_t capacity_bytes);
  ~VirtualMemory() override;

  /// Returns a segment filled with kVirtualPoison; null beyond the capacity.
  void* reserve(size_t bytes) override;
  void release(void* segment, size_t bytes) noexcept override;
  size_t limit_bytes() const noexcept override { return capacity_.load(std::memory_order_relaxed); }

  /// Fills the block with kVirtualPoison once the work of all `users` has ended; the last stream to reach
  /// this point does it.
  void retire(void* block, size_t bytes, std::span<Stream* const> users) override;

  /// Sets the capacity, at most the address space that was reserved at the start.
  void set_capacity(size_t bytes);

  /// Returns the difference between the kernels' alias and the device address of a byte.
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
