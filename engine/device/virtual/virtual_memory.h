// The memory of a virtual device. A memory file is mapped twice: in a range of addresses that the host must
// not access, and in a second range, the kernels' alias, through which tasks access the same pages.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>

#include "engine/device/pool.h"

namespace mx {

/// The value of fresh and of freed bytes of a virtual device. As a float or a double it is a huge negative
/// number, which no sensible program computes; as an index it is out of range.
constexpr unsigned char kVirtualPoison = 0xFB;

class VirtualMemory final : public MemorySource {
 public:
  /// Reserves address space, not memory. Throws DeviceError if that fails.
  explicit VirtualMemory(size_t capacity_bytes);
  ~VirtualMemory() override;

  /// Returns a segment, filled with the poison, or null if the capacity would be exceeded.
  void* reserve(size_t bytes) override;
  void release(void* segment, size_t bytes) noexcept override;
  size_t limit_bytes() const noexcept override { return capacity_.load(std::memory_order_relaxed); }

  /// Fills the block with the poison when the work of all `users` has ended.
  void retire(void* block, size_t bytes, std::span<Stream* const> users) override;

  /// Throws InvalidArgument for more than the address space that the constructor has reserved.
  void set_capacity(size_t bytes);

  /// Returns the distance from a device address to the kernels' alias of it, in bytes.
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
