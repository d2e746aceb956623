#include "comm/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "comm/shm/region.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm::shm {
namespace {

constexpr size_t kSmallestWindow = size_t{64} << 20;

}  // namespace

size_t Arena::default_window(int size) {
  const size_t memory =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return whole_pages(std::max(memory / static_cast<size_t>(size), kSmallestWindow));
}

Fd Arena::create(int size, size_t window_bytes) {
  const uint64_t bytes = uint64_t{window_bytes} * static_cast<uint64_t>(size);
  if (!within_file_limit(bytes)) return {};
  Fd memory = new_shared_memory("mx-shm-arena");
  if (!memory || ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return {};
  return memory;
}

std::shared_ptr<Arena> Arena::map(Fd memory, int rank, int size, size_t window_bytes) {
  if (!memory) return nullptr;
  // The size of a window is what another process says.
  const size_t ranks = static_cast<size_t>(size);
  struct stat status {};
  MX_CHECK(fstat(memory.get(), &status) == 0 && window_bytes > 0 &&
               static_cast<size_t>(status.st_size) / window_bytes == ranks &&
               static_cast<size_t>(status.st_size) % window_bytes == 0,
           ProtocolError, "[shm] expected memory for ", size, " windows of ", window_bytes, " bytes, got ",
           status.st_size, " bytes");
  const size_t bytes = window_bytes * ranks;
  void* const base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (base == MAP_FAILED) return nullptr;
  // Only a hint: many kernels refuse large pages for shared memory.
  madvise(base, bytes, MADV_HUGEPAGE);
  madvise(base, bytes, MADV_DONTDUMP);
  return std::shared_ptr<Arena>(new Arena(std::move(memory), static_cast<char*>(base), bytes,
                                          window_bytes * static_cast<size_t>(rank), window_bytes));
}

Arena::Arena(Fd memory, char* base, size_t bytes, size_t first, size_t window_bytes)
    : memory_(std::move(memory)), base_(base), bytes_(bytes) {
  free_.emplace(first, window_bytes);
}

Arena::~Arena() { munmap(base_, bytes_); }

std::shared_ptr<void> Arena::allocate(size_t wanted) {
  if (wanted > bytes_) return nullptr;
  const size_t bytes = whole_pages(std::max<size_t>(wanted, 1));
  uint64_t offset = 0;
  {
    std::lock_guard lock(mutex_);
    const auto block =
        std::find_if(free_.begin(), free_.end(), [bytes](const auto& b) { return b.second >= bytes; });
    if (block == free_.end()) return nullptr;
    offset = block->first;
    const size_t rest = block->second - bytes;
    free_.erase(block);
    if (rest > 0) free_.emplace(offset + bytes, rest);
  }
  if (!within_file_limit(offset + bytes) || !reserve_pages(memory_.get(), offset, bytes)) {
    release(offset, bytes);
    return nullptr;
  }
  return {base_ + offset,
          [arena = shared_from_this(), offset, bytes](void*) { arena->release(offset, bytes); }};
}

void Arena::release(uint64_t offset, size_t bytes) {
  // A forked child would take the pages of its parent.
  if (!process_.is_here()) return;
  // Gives the pages back. The next allocation here reads zeros.
  fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  std::lock_guard lock(mutex_);
  auto block = free_.emplace(offset, bytes).first;
  const auto next = std::next(block);
  if (next != free_.end() && offset + bytes == next->first) {
    block->second += next->second;
    free_.erase(next);
  }
  if (block == free_.begin()) return;
  const auto before = std::prev(block);
  if (before->first + before->second == block->first) {
    before->second += block->second;
    free_.erase(block);
  }
}

uint64_t Arena::offset_of(const void* buffer, size_t bytes) const {
  const char* const at = static_cast<const char*>(buffer);
  if (at == nullptr || at < base_ || at >= base_ + bytes_) return kNowhere;
  const auto offset = static_cast<uint64_t>(at - base_);
  return contains(offset, bytes) ? offset : kNowhere;
}

}  // namespace mx::comm::shm
