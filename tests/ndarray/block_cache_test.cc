// The cache of blocks: a block that has been freed is used again, whatever threads allocate and free.
#include "ndarray/detail/block_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace mx {
namespace {

using detail::BlockKind;
using detail::free_block;
using detail::kMagazine;
using detail::new_block;

// No other code of this program uses blocks of this kind.
constexpr BlockKind kKind = BlockKind::node;

template <class F>
void on_another_thread(const F& f) {
  std::thread(f).join();
}

std::vector<void*> allocate(int n) {
  std::vector<void*> blocks;
  for (int i = 0; i < n; ++i) blocks.push_back(new_block(kKind));
  return blocks;
}
void free_all(const std::vector<void*>& blocks) {
  for (void* block : blocks) free_block(kKind, block);
}

/// Returns the blocks that a thread has allocated and freed before it ended.
std::set<void*> freed_by_a_thread() {
  std::set<void*> freed;
  on_another_thread([&] {
    const std::vector<void*> blocks = allocate(kMagazine);
    freed.insert(blocks.begin(), blocks.end());
    free_all(blocks);
  });
  return freed;
}

TEST(BlockCache, AThreadThatEndsHandsOverTheBlocksThatItHasFreed) {
  if (!detail::kCacheBlocks) GTEST_SKIP() << "every block is an allocation of its own";
  const std::set<void*> freed = freed_by_a_thread();
  on_another_thread([&] {
    const std::vector<void*> blocks = allocate(kMagazine);
    EXPECT_EQ(freed, std::set<void*>(blocks.begin(), blocks.end()));
    free_all(blocks);
  });
}

// A thread may make an array and give it to another thread, and free nothing itself. When it ends, the blocks
// that it has taken from the shared list and has not used must not be lost.
TEST(BlockCache, AThreadThatOnlyAllocatesHandsOverTheBlocksThatItHasNotUsed) {
  if (!detail::kCacheBlocks) GTEST_SKIP() << "every block is an allocation of its own";
  std::set<void*> freed = freed_by_a_thread();
  void* used = nullptr;
  on_another_thread([&] { used = new_block(kKind); });
  EXPECT_EQ(1u, freed.erase(used));
  on_another_thread([&] {
    const std::vector<void*> blocks = allocate(kMagazine - 1);
    EXPECT_EQ(freed, std::set<void*>(blocks.begin(), blocks.end()));
    free_all(blocks);
    free_block(kKind, used);
  });
}

}  // namespace
}  // namespace mx
