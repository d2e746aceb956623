// Tests the pool on a memory source that the test controls: its memory, its failures and its timing.
#include "engine/device/pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <map>
#include <random>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/device/pool_asan.h"
#include "engine/device/registry.h"
#include "tests/conformance/device_suite.h"

namespace mx {

namespace {

class TestSource final : public MemorySource {
 public:
  void* reserve(size_t bytes) override {
    if (broken) throw DeviceError("[test] expected a driver, got none");
    if (reserved + bytes > limit) return nullptr;
    reserved += bytes;
    return std::aligned_alloc(4096, bytes);
  }
  void release(void* segment, size_t bytes) noexcept override {
    reserved -= bytes;
    std::free(segment);
  }
  size_t limit_bytes() const noexcept override { return limit; }

  size_t limit = size_t{256} << 20;
  size_t reserved = 0;
  bool broken = false;
};

class PoolTest : public ::testing::Test {
 protected:
  TestSource source;
  Pool pool{cpu(), source, {.host_accessible = true}};
};

TEST_F(PoolTest, GivesEverythingBackAtItsEnd) {
  {
    Pool temporary(cpu(), source);
    temporary.free(temporary.allocate(100, nullptr), nullptr);
    temporary.free(temporary.allocate(100 << 20, nullptr), nullptr);
    EXPECT_GT(source.reserved, size_t{100} << 20);
  }
  EXPECT_EQ(source.reserved, 0u);
}

TEST_F(PoolTest, BlocksNeverOverlapWhateverTheSizes) {
  std::mt19937_64 random(3);
  std::map<uintptr_t, size_t> live;
  size_t in_use = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 200 && random() % 5 < 3) {
      const size_t bytes = 1 + (random() & ((uint64_t{1} << (random() % 21)) - 1));
      const auto p = reinterpret_cast<uintptr_t>(pool.allocate(bytes, nullptr));
      ASSERT_EQ(p % 64, 0u);
      const auto next = live.lower_bound(p);
      ASSERT_TRUE(next == live.end() || p + bytes <= next->first);
      ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= p);
      live.emplace(p, bytes);
      in_use += bytes;
    } else if (!live.empty()) {
      auto it = live.lower_bound(random());
      if (it == live.end()) it = live.begin();
      pool.free(reinterpret_cast<void*>(it->first), nullptr);
      in_use -= it->second;
      live.erase(it);
    }
    ASSERT_EQ(pool.stats().in_use_bytes, in_use);
  }
  EXPECT_EQ(pool.stats().reserved_bytes, source.reserved);
  for (const auto& [p, bytes] : live) pool.free(reinterpret_cast<void*>(p), nullptr);
  // All blocks coalesced into their segments again; otherwise some could not be released.
  EXPECT_EQ(pool.trim(), pool.stats().peak_reserved_bytes);
  EXPECT_EQ(source.reserved, 0u);
}

TEST_F(PoolTest, SteadyStateAsksTheBackendForNothing) {
  std::mt19937 random(1);
  std::vector<size_t> sizes(64);
  for (auto& bytes : sizes) bytes = 1 + random() % (1 << (4 + random() % 20));
  uint64_t segments = 0;
  for (int step = 0; step < 10; ++step) {
    std::vector<void*> blocks;
    for (const size_t bytes : sizes) blocks.push_back(pool.allocate(bytes, nullptr));
    for (void* p : blocks) pool.free(p, nullptr);
    if (step == 0) segments = pool.stats().backend_allocations;
  }
  EXPECT_EQ(pool.stats().backend_allocations, segments);
}

TEST_F(PoolTest, SmallBlocksDoNotLieBetweenLargeOnes) {
  char* large = static_cast<char*>(pool.allocate(1 << 20, nullptr));
  char* small = static_cast<char*>(pool.allocate(64, nullptr));
  char* next = static_cast<char*>(pool.allocate(1 << 20, nullptr));
  EXPECT_FALSE(small > large && small < next);
  for (char* p : {large, small, next}) pool.free(p, nullptr);
}

TEST_F(PoolTest, SmallRequestsTakeLargeSegmentsWhenShort) {
  source.limit = 8 << 20;
  // Together with ASan's redzone this takes all the memory.
  void* large = pool.allocate((8 << 20) - 64, nullptr);
  EXPECT_THROW(pool.allocate(64, nullptr), OutOfMemory);
  pool.free(large, nullptr);
  void* half = pool.allocate(4 << 20, nullptr);
  std::vector<void*> small;
  for (int i = 0; i < 30; ++i) small.push_back(pool.allocate(100'000, nullptr));
  for (void* p : small) pool.free(p, nullptr);
  pool.free(half, nullptr);
}

TEST_F(PoolTest, ABackendErrorPassesThroughAndThePoolGoesOn) {
  source.broken = true;
  EXPECT_THROW(pool.allocate(64, nullptr), DeviceError);
  source.broken = false;
  pool.free(pool.allocate(64, nullptr), nullptr);
  EXPECT_EQ(pool.stats().in_use_bytes, 0u);
}

TEST_F(PoolTest, ForeignAndDoubleFreesAreIgnored) {
  int local = 0;
  const LogSink before = set_log_sink([](LogLevel, const std::string&) {});
  pool.free(&local, nullptr);
  void* p = pool.allocate(64, nullptr);
  pool.free(p, nullptr);
  pool.free(p, nullptr);
  set_log_sink(before);
  EXPECT_EQ(pool.stats().in_use_bytes, 0u);
  auto stream = get_device(cpu()).new_stream();
  EXPECT_THROW(pool.note_use(&local, *stream), InvalidArgument);
}

// A stream's free blocks merge with adjacent blocks whose use has ended, so a larger request of that stream
// needs no new memory.
TEST_F(PoolTest, AStreamJoinsItsBlocksWithSettledNeighbours) {
  auto stream = get_device(cpu()).new_stream();
  auto gate = conformance::host_ops().hold(*stream);
  std::vector<void*> blocks;
  while (pool.stats().backend_allocations < 2) blocks.push_back(pool.allocate(100'000, nullptr));
  pool.free(blocks.back(), nullptr);
  blocks.pop_back();
  for (size_t i = 0; i < blocks.size(); ++i) pool.free(blocks[i], i % 2 == 0 ? stream.get() : nullptr);
  blocks.clear();
  for (int i = 0; i < 12; ++i) blocks.push_back(pool.allocate(400'000, stream.get()));
  EXPECT_EQ(pool.stats().backend_allocations, 2u);
  EXPECT_EQ(pool.stats().stream_waits, 0u);
  for (void* p : blocks) pool.free(p, stream.get());
  gate->open();
  stream->synchronize();
  EXPECT_EQ(pool.trim(), pool.stats().peak_reserved_bytes);
}

// If a block in flight is split, the rest is in flight as well.
TEST_F(PoolTest, TheRestOfASplitBlockStaysInFlight) {
  auto stream = get_device(cpu()).new_stream();
  auto gate = conformance::host_ops().hold(*stream);
  char* whole = static_cast<char*>(pool.allocate(100'000, stream.get()));
  pool.free(whole, stream.get());
  void* part = pool.allocate(10'000, stream.get());
  EXPECT_EQ(part, whole);
  pool.trim();  // polls
  char* other = static_cast<char*>(pool.allocate(50'000, nullptr));
  EXPECT_TRUE(other + 50'000 <= whole || other >= whole + 100'000);
  pool.free(part, stream.get());
  pool.free(other, nullptr);
  gate->open();
  stream->synchronize();
}

// Adjacent free blocks of one stream merge at once. The merged block becomes free when the later of the two
// uses has ended.
TEST_F(PoolTest, MergedBlocksWaitForTheLaterUse) {
  auto stream = get_device(cpu()).new_stream();
  for (const bool later_block_first : {false, true}) {
    char* a = static_cast<char*>(pool.allocate(50'000, stream.get()));
    char* b = static_cast<char*>(pool.allocate(50'000, stream.get()));
    auto first = conformance::host_ops().hold(*stream);
    pool.free(later_block_first ? b : a, stream.get());
    std::promise<void> passed;
    stream->mark()->when_reached([&] { passed.set_value(); });
    auto second = conformance::host_ops().hold(*stream);
    pool.free(later_block_first ? a : b, stream.get());
    first->open();
    passed.get_future().wait();
    pool.trim();  // polls
    char* other = static_cast<char*>(pool.allocate(50'000, nullptr));
    EXPECT_TRUE(other + 50'000 <= a || other >= b + 50'000);
    pool.free(other, nullptr);
    second->open();
    stream->synchronize();
    pool.trim();
  }
}

TEST_F(PoolTest, APrivatePoolKeepsItsMemoryToItself) {
  Pool other(cpu(), source, {.host_accessible = true});
  void* p = pool.allocate(1000, nullptr);
  pool.free(p, nullptr);
  void* q = other.allocate(1000, nullptr);
  EXPECT_NE(p, q);
  EXPECT_EQ(other.stats().backend_allocations, 1u);
  other.free(q, nullptr);
}

#ifdef MX_POOL_ASAN
TEST_F(PoolTest, SanitizersSeeUseAfterFreeAndOverrun) {
  auto* p = static_cast<char*>(pool.allocate(100, nullptr));
  p[99] = 1;
  EXPECT_EQ(__asan_address_is_poisoned(p + 99), 0);
  EXPECT_EQ(__asan_address_is_poisoned(p + 100), 1);
  pool.free(p, nullptr);
  EXPECT_EQ(__asan_address_is_poisoned(p), 1);
}
#endif

}  // namespace
}  // namespace mx
