// Allocates blocks of a few fixed sizes for the records of array operations. In the steady state, allocating
// and freeing a block needs no lock and no system call. Internal.
//
// Each thread caches up to kMagazine blocks of a size. It moves blocks beyond that, half a magazine at a
// time, to a list that all threads share, because the pusher allocates an operation's records and a worker
// frees them. Blocks are never returned to the system. Under AddressSanitizer every block is an allocation of
// its own. Source: the magazine layer of Bonwick and Adams, "Magazines and Vmem" (2001).
#pragma once

#include <cstddef>

namespace mx::detail {

enum class BlockKind { array, storage, call, node };
inline constexpr int kBlockKinds = 4;
inline constexpr size_t kBlockBytes[kBlockKinds] = {320, 256, 512, 384};  // aligned to 64
inline constexpr int kMagazine = 64;

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCacheBlocks = false;
#else
inline constexpr bool kCacheBlocks = true;
#endif

struct Magazine {
  int size;
  int limit;  // kMagazine while the thread is registered to hand over its blocks at its end; 0 before and
              // after
  void* blocks[kMagazine];
};
extern thread_local constinit Magazine magazines[kBlockKinds] __attribute__((tls_model("initial-exec")));

/// Throws std::bad_alloc.
void* refill_magazine(BlockKind kind);
void spill_magazine(BlockKind kind, void* block) noexcept;

inline void* new_block(BlockKind kind) {
  Magazine& magazine = magazines[static_cast<int>(kind)];
  if (magazine.size > 0) [[likely]]
    return magazine.blocks[--magazine.size];
  return refill_magazine(kind);
}

inline void free_block(BlockKind kind, void* block) noexcept {
  Magazine& magazine = magazines[static_cast<int>(kind)];
  if (kCacheBlocks && magazine.size < magazine.limit) [[likely]] {
    magazine.blocks[magazine.size++] = block;
    return;
  }
  spill_magazine(kind, block);
}

}  // namespace mx::detail
