// Arena: memory of the user that all ranks of the host map, so that peers read and write it directly.
// Internal.
//
// One anonymous, sparse file holds a window for each rank, and every rank maps all of it once. A rank
// allocates only in its own window. Pages are reserved when memory is allocated, so a full host or a file
// size limit shows as a refused allocation, not as SIGBUS later.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "comm/net/fd.h"
#include "engine/base/process_mark.h"

namespace mx::comm::shm {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  /// The bytes of the window of each rank by default: together as many as the host has memory.
  static size_t default_window(int size);
  /// Makes the file. Returns an empty descriptor if the kernel refuses.
  static Fd create(int size, size_t window_bytes);
  /// Maps the file. Returns null if the kernel refuses: then this rank has no arena. Throws ProtocolError if
  /// the file does not have the size of the windows.
  static std::shared_ptr<Arena> map(Fd memory, int rank, int size, size_t window_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns memory aligned to a page, or null if the kernel refuses or the window is full. The memory keeps
  /// the arena alive.
  std::shared_ptr<void> allocate(size_t bytes);

  /// Returns the offset of a buffer, or kNowhere if it is not in the arena.
  uint64_t offset_of(const void* buffer, size_t bytes) const;
  bool has(const void* buffer, size_t bytes) const { return offset_of(buffer, bytes) != ~uint64_t{0}; }
  char* at(uint64_t offset) const { return base_ + offset; }
  /// Returns whether [offset, offset + bytes) lies within the arena.
  bool contains(uint64_t offset, size_t bytes) const { return offset <= bytes_ && bytes <= bytes_ - offset; }

 private:
  Arena(Fd memory, char* base, size_t bytes, size_t first, size_t window_bytes);
  void release(uint64_t offset, size_t bytes);

  const ProcessMark process_;
  const Fd memory_;
  char* const base_;
  const size_t bytes_;
  std::mutex mutex_;
  std::map<uint64_t, size_t> free_;  // offset to bytes, no two neighbours; guarded by the mutex
};

}  // namespace mx::comm::shm
