#include "ndarray/detail/block_cache.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>

#include "engine/base/process_mark.h"

namespace mx::detail {

thread_local constinit Magazine magazines[kBlockKinds]{};

namespace {

struct FreeBlock {
  FreeBlock* next;
};

// The blocks that all threads share.
struct Depot {
  std::mutex mutex;
  FreeBlock* first = nullptr;
};

// Never destroyed, because arrays with static lifetime return their blocks after main().
Depot& depot(BlockKind kind) {
  static Depot* depots = new Depot[kBlockKinds];
  return depots[static_cast<int>(kind)];
}

void give(BlockKind kind, void** blocks, int n) {
  Depot& d = depot(kind);
  std::lock_guard lock(d.mutex);
  for (int i = 0; i < n; ++i) d.first = new (blocks[i]) FreeBlock{d.first};
}

enum class Life { unused, in_use, over };
thread_local constinit Life life = Life::unused;

// Moves the blocks of an ending thread to the shared list. A forked child leaves them where they are: another
// thread of the parent may have held the mutex of the list at the fork.
struct Janitor {
  const ProcessMark process;

  ~Janitor() {
    life = Life::over;
    if (!process.is_here()) return;
    for (int kind = 0; kind < kBlockKinds; ++kind) {
      Magazine& magazine = magazines[kind];
      give(static_cast<BlockKind>(kind), magazine.blocks, magazine.size);
      magazine.size = magazine.limit = 0;
    }
  }
};

// Makes this thread hand over its blocks at its end. Called before the thread caches its first block: blocks
// that a thread takes along when it ends would never be used again.
void begin_caching() {
  thread_local Janitor janitor;
  (void)&janitor;
  life = Life::in_use;
  for (Magazine& magazine : magazines) magazine.limit = kMagazine;
}

void* fresh(BlockKind kind) {
  void* block = std::aligned_alloc(64, kBlockBytes[static_cast<int>(kind)]);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

void* refill_magazine(BlockKind kind) {
  if (!kCacheBlocks) return fresh(kind);
  if (life == Life::unused) begin_caching();
  Magazine& magazine = magazines[static_cast<int>(kind)];
  Depot& d = depot(kind);
  {
    std::lock_guard lock(d.mutex);
    while (d.first != nullptr && magazine.size < kMagazine / 2) {
      magazine.blocks[magazine.size++] = d.first;
      d.first = d.first->next;
    }
  }
  if (magazine.size == 0) return fresh(kind);
  void* block = magazine.blocks[--magazine.size];
  if (life == Life::over) {  // take a single block: this thread would never return the rest of a magazine
    give(kind, magazine.blocks, magazine.size);
    magazine.size = 0;
  }
  return block;
}

// Also called for the first block that a thread returns, because the limit of its magazines is 0 until
// begin_caching().
void spill_magazine(BlockKind kind, void* block) noexcept {
  if (!kCacheBlocks) return std::free(block);
  Magazine& magazine = magazines[static_cast<int>(kind)];
  if (life == Life::over) return give(kind, &block, 1);
  if (life == Life::unused) begin_caching();
  if (magazine.size == kMagazine) {
    magazine.size -= kMagazine / 2;
    give(kind, magazine.blocks + magazine.size, kMagazine / 2);
  }
  magazine.blocks[magazine.size++] = block;
}

}  // namespace mx::detail
