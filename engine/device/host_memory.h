// Host memory in segments for the cpu device's pool, and the hook by which an accelerator's backend makes
// them page-locked.
//
// Thread-safety: safe from any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "engine/device/pool.h"

namespace mx {

/// Page-locked memory of a driver. `allocate` returns null when it has none; all must be safe from any
/// thread and stay valid until the process ends.
struct PinnedHostMemory {
  void* (*allocate)(size_t bytes) = nullptr;
  void (*free)(void* memory) = nullptr;
  /// Locks pages that the process has already. Returns false if they cannot be locked. Null: not supported.
  bool (*lock)(void* memory, size_t bytes) = nullptr;
  void (*unlock)(void* memory) = nullptr;
};

/// Makes later segments come from `memory` as long as it has any. An accelerator's backend calls this when
/// its first device starts, so that copies to and from cpu(0)'s memory need no staging.
void set_pinned_host_memory(PinnedHostMemory memory);
/// Page-locks the segments that were reserved before set_pinned_host_memory() and are still in use: otherwise
/// later arrays in their free parts would need staging. Segments of a single large array (above
/// kLongestLocked) stay as they are, because locking them takes long. An accelerator's backend calls this
/// after it has trimmed the memory of cpu(0).
void lock_host_memory();

/// Anonymous pages, or page-locked ones, up to the memory of the machine or of the process's cgroup.
class HostMemory final : public MemorySource {
 public:
  static constexpr size_t kLongestLocked = size_t{32} << 20;

  HostMemory();
  ~HostMemory() override;

  /// Returns null beyond the limit, or if the system has no more memory.
  void* reserve(size_t bytes) override;
  void release(void* segment, size_t bytes) noexcept override;
  size_t limit_bytes() const noexcept override { return limit_; }
  /// A driver may wait for its devices before it unlocks pages.
  bool release_may_wait() const noexcept override { return any_pinned_.load(std::memory_order_relaxed); }

 private:
  friend void lock_host_memory();
  void lock_segments(const PinnedHostMemory& pinned);

  const size_t limit_;
  std::atomic<size_t> reserved_{0};
  std::atomic<bool> any_pinned_{false};
  std::mutex mutex_;
  std::unordered_map<void*, void (*)(void*)> pinned_;  // page-locked segments and their free functions
  std::unordered_map<void*, size_t> pageable_;         // other segments and their bytes
  std::unordered_map<void*, void (*)(void*)>
      locked_;  // those of them that were locked, and how to unlock them
};

}  // namespace mx
