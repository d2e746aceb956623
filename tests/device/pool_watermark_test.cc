// Tests the pool's watermark on a memory source that records what it has lent and when each segment was
// returned.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <latch>
#include <map>
#include <random>
#include <thread>

#include "engine/base/error.h"
#include "engine/device/pool.h"
#include "engine/device/registry.h"
#include "tests/conformance/device_suite.h"

namespace mx {
namespace {

constexpr size_t kMega = 1 << 20;

class CountingSource final : public MemorySource {
 public:
  void* reserve(size_t bytes) override {
    void* segment = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::lock_guard lock(mutex);
    segments.emplace(static_cast<char*>(segment), bytes);
    reserved += bytes;
    return segment;
  }
  void release(void* segment, size_t) noexcept override {
    std::lock_guard lock(mutex);
    const auto at = segments.find(static_cast<char*>(segment));
    reserved -= at->second;
    segments.erase(at);
    std::free(segment);
    changed.notify_all();
  }
  size_t limit_bytes() const noexcept override { return SIZE_MAX; }
  bool release_may_wait() const noexcept override { return may_wait; }

  void wait_until_at_most(size_t bytes) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reserved <= bytes; });
  }

  bool may_wait = false;
  std::mutex mutex;
  std::condition_variable changed;
  size_t reserved = 0;
  std::map<char*, size_t> segments;
};

class PoolWatermark : public ::testing::Test {
 protected:
  CountingSource source;
  Pool pool{cpu(), source, {.host_accessible = true, .watermark = 40 * kMega}};
};

TEST_F(PoolWatermark, WithSeparateSegmentsEachRequestHasOneOfItsSizeWhileItIsUsed) {
  Pool separate(cpu(), source, {.alignment = 256, .separate = true});
  std::vector<void*> blocks;
  for (const size_t bytes : {size_t{1000}, size_t{1000}, size_t{24}, 3 * kMega + 8}) {
    blocks.push_back(separate.allocate(bytes, nullptr));
    EXPECT_EQ(bytes, source.segments.at(static_cast<char*>(blocks.back())));
  }
  for (void* const block : blocks) separate.free(block, nullptr);
  EXPECT_EQ(0u, source.reserved);
  EXPECT_EQ(0u, separate.stats().cached_bytes);
  auto stream = get_device(cpu()).new_stream();
  std::latch gate(1);
  void* const used = separate.allocate(1000, stream.get());
  stream->submit([&](KernelContext&) { gate.wait(); });
  separate.free(used, stream.get());
  // The stream could have the block again, which may be of another size.
  void* const next = separate.allocate(990, stream.get());
  EXPECT_NE(used, next);
  EXPECT_EQ(990u, source.segments.at(static_cast<char*>(next)));
  gate.count_down();
  stream->synchronize();
  separate.free(next, nullptr);
  source.wait_until_at_most(0);
}

// After every call, the cache is not larger than the watermark, except for memory in segments that contain
// blocks in use. The test checks every segment.
TEST_F(PoolWatermark, OnlySegmentsThatHoldBlocksInUseKeepMoreCached) {
  std::mt19937_64 random(11);
  std::map<char*, size_t> live;
  for (int step = 0; step < 4000; ++step) {
    if (step % 1000 < 600 ? random() % 3 != 0 : random() % 3 == 0) {
      const size_t bytes = 1 + random() % (random() % 8 == 0 ? 30 * kMega : 300'000);
      live.emplace(static_cast<char*>(pool.allocate(bytes, nullptr)), bytes);
    } else if (!live.empty()) {
      const auto it = std::next(live.begin(), static_cast<ptrdiff_t>(random() % live.size()));
      pool.free(it->first, nullptr);
      live.erase(it);
    }
    if (live.size() > 150) {
      pool.free(live.begin()->first, nullptr);
      live.erase(live.begin());
    }
    const MemoryStats stats = pool.stats();
    if (stats.cached_bytes <= stats.watermark_bytes) continue;
    for (const auto& [base, bytes] : source.segments) {
      const auto first = live.lower_bound(base);
      ASSERT_TRUE(first != live.end() && first->first < base + bytes) << "an unused segment was kept";
    }
  }
  EXPECT_GT(pool.stats().watermark_frees, 0u);
  for (const auto& [p, bytes] : live) pool.free(p, nullptr);
  EXPECT_LE(source.reserved, 40 * kMega);
  EXPECT_EQ(pool.stats().cached_bytes, source.reserved);
  EXPECT_EQ(pool.stats().reserved_bytes, source.reserved);
}

TEST_F(PoolWatermark, BelowItMemoryStaysAndIsReused) {
  uint64_t segments = 0;
  for (int round = 0; round < 5; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < 30; ++i) blocks.push_back(pool.allocate(kMega, nullptr));
    for (void* p : blocks) pool.free(p, nullptr);
    if (round == 0) segments = pool.stats().backend_allocations;
  }
  EXPECT_EQ(pool.stats().backend_frees, 0u);
  EXPECT_EQ(pool.stats().backend_allocations, segments);
}

TEST_F(PoolWatermark, ASegmentThatIsTooLargeToStayDoesNotDriveOutSmallOnes) {
  pool.free(pool.allocate(1000, nullptr), nullptr);
  pool.free(pool.allocate(100 * kMega, nullptr), nullptr);
  EXPECT_EQ(pool.stats().watermark_frees, 1u);
  EXPECT_GT(pool.stats().cached_bytes, 1000u);
  EXPECT_LT(pool.stats().cached_bytes, 40 * kMega);
}

TEST_F(PoolWatermark, ASmallerOneTakesEffectAtOnce) {
  pool.free(pool.allocate(20 * kMega, nullptr), nullptr);
  void* used = pool.allocate(1000, nullptr);
  pool.set_watermark(0);
  EXPECT_LT(source.reserved, 20 * kMega);
  EXPECT_EQ(pool.stats().watermark_bytes, 0u);
  pool.free(used, nullptr);
  EXPECT_EQ(source.reserved, 0u);
}

// Memory in flight is released as soon as its work has ended, without another call of the pool, and not
// earlier.
TEST_F(PoolWatermark, MemoryInFlightGoesBackWhenItsWorkHasEnded) {
  Device& device = get_device(cpu());
  auto first = device.new_stream(), second = device.new_stream();
  std::atomic<int> wrong = 0;
  const auto use = [&](Stream& stream, int value) {
    auto* p = static_cast<char*>(pool.allocate(50 * kMega, &stream));
    stream.submit([&wrong, p, value](KernelContext&) {
      for (size_t i = 0; i < 50 * kMega; i += 4096) p[i] = static_cast<char>(value);
      for (size_t i = 0; i < 50 * kMega; i += 4096) wrong += p[i] != value;
    });
    pool.free(p, &stream);
  };
  auto first_gate = conformance::host_ops().hold(*first);
  auto second_gate = conformance::host_ops().hold(*second);
  use(*first, 1);
  use(*second, 2);
  EXPECT_GE(pool.stats().in_flight_bytes, 100 * kMega);
  EXPECT_GE(source.reserved, 100 * kMega);
  second_gate->open();
  source.wait_until_at_most(60 * kMega);
  EXPECT_GE(source.reserved, 50 * kMega) << "what the first stream uses";
  first_gate->open();
  source.wait_until_at_most(40 * kMega);
  first->synchronize();
  EXPECT_EQ(wrong, 0);
}

TEST_F(PoolWatermark, BlocksUsedOnSeveralStreamsWaitForAllOfThem) {
  Device& device = get_device(cpu());
  auto first = device.new_stream(), second = device.new_stream();
  auto first_gate = conformance::host_ops().hold(*first);
  auto second_gate = conformance::host_ops().hold(*second);
  for (int i = 0; i < 3; ++i) {
    auto* p = static_cast<char*>(pool.allocate(50 * kMega, first.get()));
    pool.note_use(p, *second);
    second->submit([p](KernelContext&) { p[0] = 1; });
    pool.free(p, first.get());
  }
  const size_t all = source.reserved;
  first_gate->open();
  first->synchronize();
  pool.free(pool.allocate(1, nullptr), nullptr);
  EXPECT_GE(source.reserved, all);
  second_gate->open();
  source.wait_until_at_most(40 * kMega);
}

// If release() of a driver may wait for its device, the pool calls it neither from free() nor from a
// callback, but at the next allocation.
TEST_F(PoolWatermark, ASourceThatMayWaitFollowsAtTheNextAllocation) {
  source.may_wait = true;
  auto stream = get_device(cpu()).new_stream();
  pool.free(pool.allocate(50 * kMega, nullptr), nullptr);
  EXPECT_GE(source.reserved, 50 * kMega);
  void* p = pool.allocate(1000, nullptr);
  EXPECT_LT(source.reserved, 40 * kMega);
  pool.free(p, nullptr);
  pool.free(pool.allocate(50 * kMega, stream.get()), stream.get());
  stream->synchronize();
  while (pool.stats().cached_bytes > 40 * kMega || pool.stats().in_flight_bytes > 0)
    pool.free(pool.allocate(1000, nullptr), nullptr);
  EXPECT_LE(source.reserved, 40 * kMega);
}

TEST_F(PoolWatermark, ThreadsAndStreamsEndWithNothingCached) {
  pool.set_watermark(0);
  constexpr int kThreads = 4;
  std::latch start(kThreads);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      auto stream = get_device(cpu()).new_stream();
      start.arrive_and_wait();
      for (int i = 0; i < 200; ++i) {
        const size_t n = 1 + random() % 200'000;
        auto* p = static_cast<int*>(pool.allocate(n * 4, stream.get()));
        stream->submit([&wrong, p, n, i](KernelContext&) {
          p[0] = p[n - 1] = i;
          wrong += p[0] != i || p[n - 1] != i;
        });
        pool.free(p, stream.get());
        pool.free(pool.allocate(n, nullptr), nullptr);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  source.wait_until_at_most(0);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.stats().cached_bytes, 0u);
}

class WatermarkVariable : public ::testing::Test {
 protected:
  static size_t parse(const char* text) {
    setenv("MX_POOL_WATERMARK", text, 1);
    return watermark_from_environment(7);
  }
  ~WatermarkVariable() override { unsetenv("MX_POOL_WATERMARK"); }
};

TEST_F(WatermarkVariable, TakesBytesAndBinaryUnits) {
  EXPECT_EQ(parse(""), 7u);
  EXPECT_EQ(parse("0"), 0u);
  EXPECT_EQ(parse("1500000"), 1'500'000u);
  EXPECT_EQ(parse("3K"), size_t{3} << 10);
  EXPECT_EQ(parse("512M"), size_t{512} << 20);
  EXPECT_EQ(parse("2G"), size_t{2} << 30);
  EXPECT_EQ(parse("1T"), size_t{1} << 40);
  EXPECT_EQ(parse("unlimited"), SIZE_MAX);
  unsetenv("MX_POOL_WATERMARK");
  EXPECT_EQ(watermark_from_environment(7), 7u);
}

TEST_F(WatermarkVariable, NamesWhatDoesNotParse) {
  for (const char* text : {"much", "-1", "512MB", "1.5G", " 1", "G", "99999999999999999999", "99999999T"}) {
    try {
      parse(text);
      ADD_FAILURE() << "expected an error for " << text;
    } catch (const InvalidArgument& e) {
      EXPECT_NE(std::string(e.what()).find("MX_POOL_WATERMARK"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
}

// Runs in its own process, because a device starts only once.
TEST_F(WatermarkVariable, SetsTheDevicesThatStartAfterwards) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("MX_POOL_WATERMARK", "3M", 1);
        const bool ok = get_device(cpu()).memory_stats().watermark_bytes == 3 * kMega &&
                        get_device(virt(0)).memory_stats().watermark_bytes == 3 * kMega;
        std::_Exit(ok ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        unsetenv("MX_POOL_WATERMARK");
        Device& host = get_device(cpu());
        const bool ok = host.memory_stats().watermark_bytes == host.properties().total_bytes / 4 &&
                        get_device(virt(0)).memory_stats().watermark_bytes == SIZE_MAX;
        std::_Exit(ok ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mx
