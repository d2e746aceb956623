#include "engine/device/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/cgroup.h"

namespace mx {

namespace {

struct PinnedHook {
  std::mutex mutex;
  PinnedHostMemory memory;
  std::vector<HostMemory*> users;  // all that exist
};

PinnedHook& hook() {
  static PinnedHook* instance = new PinnedHook;
  return *instance;
}

PinnedHostMemory pinned_host_memory() {
  std::lock_guard lock(hook().mutex);
  return hook().memory;
}

size_t limit_of(const std::string& file) {
  std::ifstream in(file);
  size_t bytes = 0;
  return in >> bytes && bytes > 0 ? bytes : SIZE_MAX;  // "max" does not parse
}

// Returns the smallest memory limit among this process's cgroup (v1 or v2) and its ancestors.
size_t cgroup_bytes() {
  // The mount points are read too: inside a container they show the container's own cgroup.
  size_t best = std::min(limit_of("/sys/fs/cgroup/memory.max"),
                         limit_of("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  for (const std::string& folder : cgroup_folders("memory")) {
    best = std::min({best, limit_of(folder + "/memory.max"), limit_of(folder + "/memory.limit_in_bytes")});
  }
  return best;
}

// Segments of this size and more are on huge pages if the system allows it
// (/sys/kernel/mm/transparent_hugepage): their memory is cleared and translated in pieces of 2 MiB. Smaller
// segments would become larger by that.
constexpr size_t kHugePage = size_t{2} << 20, kLeastHuge = 4 * kHugePage;

// Returns nullptr if there is no memory.
void* map_segment(size_t bytes) {
  const bool huge = bytes >= kLeastHuge;
  const size_t mapped = huge ? bytes + kHugePage : bytes;
  void* const start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  if (!huge) return start;
  // Huge pages begin at multiples of their size.
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  auto* const segment = static_cast<std::byte*>(start) + before;
  if (before > 0) munmap(start, before);
  if (before < kHugePage) munmap(segment + bytes, kHugePage - before);
  madvise(segment, bytes, MADV_HUGEPAGE);  // a wish: without it, the memory is the same
  return segment;
}

size_t host_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  const size_t physical =
      pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) : SIZE_MAX;
  return std::min(physical, cgroup_bytes());
}

}  // namespace

void set_pinned_host_memory(PinnedHostMemory memory) {
  std::lock_guard lock(hook().mutex);
  hook().memory = memory;
}

void lock_host_memory() {
  std::lock_guard lock(hook().mutex);
  if (hook().memory.lock == nullptr) return;
  for (HostMemory* const user : hook().users) user->lock_segments(hook().memory);
}

HostMemory::HostMemory() : limit_(host_bytes()) {
  std::lock_guard lock(hook().mutex);
  hook().users.push_back(this);
}

HostMemory::~HostMemory() {
  std::lock_guard lock(hook().mutex);
  std::erase(hook().users, this);
}

void HostMemory::lock_segments(const PinnedHostMemory& pinned) {
  std::lock_guard lock(mutex_);
  for (const auto& [segment, bytes] : pageable_) {
    if (bytes > kLongestLocked || locked_.contains(segment) || !pinned.lock(segment, bytes)) continue;
    locked_.emplace(segment, pinned.unlock);
    any_pinned_.store(true, std::memory_order_relaxed);
  }
}

void* HostMemory::reserve(size_t bytes) {
  if (reserved_.fetch_add(bytes, std::memory_order_relaxed) + bytes > limit_) {
    reserved_.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  if (const PinnedHostMemory pinned = pinned_host_memory(); pinned.allocate != nullptr) {
    if (void* segment = pinned.allocate(bytes)) {
      any_pinned_.store(true, std::memory_order_relaxed);
      std::lock_guard lock(mutex_);
      pinned_.emplace(segment, pinned.free);
      return segment;
    }
  }
  if (void* const segment = map_segment(bytes)) {
    std::lock_guard lock(mutex_);
    pageable_.emplace(segment, bytes);
    return segment;
  }
  reserved_.fetch_sub(bytes, std::memory_order_relaxed);
  return nullptr;
}

void HostMemory::release(void* segment, size_t bytes) noexcept {
  void (*free_pinned)(void*) = nullptr;
  void (*unlock)(void*) = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto take = [segment](auto& functions) -> void (*)(void*) {
      const auto it = functions.find(segment);
      if (it == functions.end()) return nullptr;
      const auto function = it->second;
      functions.erase(it);
      return function;
    };
    free_pinned = take(pinned_);
    unlock = take(locked_);
    pageable_.erase(segment);
  }
  if (unlock != nullptr) unlock(segment);
  if (free_pinned != nullptr) {
    free_pinned(segment);
  } else {
    munmap(segment, bytes);
  }
  reserved_.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace mx
