// Memory: no user sees the data of another block, a block is reused neither too early nor needlessly late,
// and the statistics add up.
#include <algorithm>
#include <latch>
#include <random>
#include <thread>

#include "engine/base/error.h"
#include "tests/conformance/device_suite.h"

namespace mx::conformance {

namespace {

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

TEST_P(DeviceSuite, NoBytesAreNoMemory) {
  auto s = stream();
  EXPECT_EQ(device().allocate(0), nullptr);
  EXPECT_EQ(device().allocate(0, s.get()), nullptr);
  device().free(nullptr);
  device().free(nullptr, s.get());
}

TEST_P(DeviceSuite, MemoryIsAligned) {
  for (const size_t bytes : {1, 63, 65, 1000, 100'000, 3'000'001}) {
    Block<char> first(device(), bytes), second(device(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(second.get()) % 64, 0u);
    EXPECT_FALSE(overlap(first.get(), bytes, second.get(), bytes));
  }
}

// Every block is filled with its own number, and the number is checked before the block is freed: on the
// block's own stream, or on another stream that is ordered after it. A block that was reused too early shows
// another block's number.
TEST_P(DeviceSuite, NobodySeesAnotherBlocksData) {
  struct Live {
    uint32_t* data;
    size_t n;
    uint32_t value;
    size_t stream;
  };
  const MemoryStats before = device().memory_stats();
  for (const unsigned seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    Block<uint32_t> wrong(device(), 1);
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(stream());
    auto e = event();
    ops().fill(*streams[0], wrong.get(), 1, 0);
    streams[0]->synchronize();
    std::vector<Live> live;
    for (uint32_t step = 1; step <= 600; ++step) {
      if (live.size() < 20 && (live.empty() || random() % 2 == 0)) {
        const size_t s = random() % streams.size();
        const size_t n = 1 + random() % (random() % 10 == 0 ? 50'000 : 500);
        Stream* on = random() % 4 == 0 ? nullptr : streams[s].get();
        auto* data = static_cast<uint32_t*>(device().allocate(n * 4, on));
        ops().fill(*streams[s], data, n, step);
        live.push_back({data, n, step, s});
        continue;
      }
      std::swap(live[random() % live.size()], live.back());
      const Live block = live.back();
      live.pop_back();
      Stream& own = *streams[block.stream];
      Stream& other = *streams[random() % streams.size()];
      const unsigned how = random() % 4;
      if (how == 0) {
        ops().check(own, block.data, block.n, block.value, wrong.get());
        device().free(block.data, &own);
        continue;
      }
      own.record(*e);
      other.wait(*e);
      ops().check(other, block.data, block.n, block.value, wrong.get());
      if (how == 1) {
        device().free(block.data, &other);
      } else if (how == 2) {
        device().note_use(block.data, other);
        ops().check(own, block.data, block.n, block.value, wrong.get());
        device().free(block.data, &own);
      } else {
        other.synchronize();
        device().free(block.data);
      }
    }
    for (const Live& block : live) {
      ops().check(*streams[block.stream], block.data, block.n, block.value, wrong.get());
      device().free(block.data, streams[block.stream].get());
    }
    for (auto& s : streams) s->synchronize();
    EXPECT_EQ(read(wrong.get()), 0u) << "seed " << seed;
  }
  EXPECT_EQ(device().memory_stats().in_use_bytes, before.in_use_bytes);
}

TEST_P(DeviceSuite, AStreamReusesItsOwnMemoryAtOnce) {
  auto s = stream();
  auto gate = ops().hold(*s);
  device().free(device().allocate(10'000, s.get()), s.get());
  const size_t reserved = device().memory_stats().reserved_bytes;
  for (uint32_t i = 0; i < 1000; ++i) {
    auto* p = static_cast<uint32_t*>(device().allocate(10'000, s.get()));
    if (i % 100 == 0) ops().fill(*s, p, 2500, i);
    device().free(p, s.get());
  }
  EXPECT_EQ(device().memory_stats().reserved_bytes, reserved);
  EXPECT_GT(device().memory_stats().in_flight_bytes, 0u);
  gate->open();
  s->synchronize();
}

TEST_P(DeviceSuite, MemoryInUseByAStreamGoesToNobodyElse) {
  constexpr size_t kBytes = 5000;
  auto s = stream(), other = stream();
  auto gate = ops().hold(*s);
  void* p = device().allocate(kBytes, s.get());
  device().free(p, s.get());
  void* q = device().allocate(kBytes, other.get());
  void* r = device().allocate(kBytes);
  EXPECT_FALSE(overlap(p, kBytes, q, kBytes));
  EXPECT_FALSE(overlap(p, kBytes, r, kBytes));
  device().free(q, other.get());
  device().free(r);
  gate->open();
  s->synchronize();
}

TEST_P(DeviceSuite, AReusedBlockRemembersTheUseBefore) {
  constexpr size_t kBytes = 5000;
  auto s = stream(), other = stream();
  auto gate = ops().hold(*s);
  void* p = device().allocate(kBytes, s.get());
  device().free(p, s.get());
  void* again = device().allocate(kBytes, s.get());
  device().free(again);  // never used, but the first use of the same memory has not ended
  void* q = device().allocate(kBytes);
  EXPECT_FALSE(overlap(p, kBytes, q, kBytes));
  again = device().allocate(kBytes, s.get());
  device().free(again, other.get());
  void* r = device().allocate(kBytes, other.get());
  EXPECT_FALSE(overlap(p, kBytes, r, kBytes));
  device().free(q);
  device().free(r);
  gate->open();
  s->synchronize();
}

TEST_P(DeviceSuite, NotedUseDelaysReuse) {
  constexpr size_t kBytes = 5000;
  auto s = stream(), user = stream();
  auto gate = ops().hold(*user);
  void* p = device().allocate(kBytes, s.get());
  device().note_use(p, *user);
  device().free(p, s.get());
  void* q = device().allocate(kBytes, s.get());
  EXPECT_FALSE(overlap(p, kBytes, q, kBytes));
  device().free(q, s.get());
  gate->open();
  user->synchronize();
}

TEST_P(DeviceSuite, AStreamMayDieBeforeMemoryThatItUsed) {
  auto s = stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) {
    auto user = stream();
    auto* p = static_cast<uint32_t*>(device().allocate(4096, user.get()));
    ops().fill(*user, p, 1024, 1);
    device().note_use(p, *user);
    blocks.push_back(p);
  }
  for (void* p : blocks) device().free(p, s.get());
  s.reset();
  Block<char> usable(device(), 4096);
  EXPECT_NE(usable.get(), nullptr);
}

TEST_P(DeviceSuite, FreeNeighboursCoalesce) {
  device().trim_memory();
  const uint64_t segments = device().memory_stats().backend_allocations;
  std::vector<void*> blocks;
  // Allocates until the pool starts a second segment, so the first segment holds only these blocks.
  while (device().memory_stats().backend_allocations < segments + 2)
    blocks.push_back(device().allocate(1024));
  const size_t count = blocks.size();
  std::mt19937 random(5);
  std::shuffle(blocks.begin(), blocks.end(), random);
  for (void* p : blocks) device().free(p);
  blocks.clear();
  const uint64_t after = device().memory_stats().backend_allocations;
  for (size_t i = 0; i + 32 <= count / 2; i += 32) blocks.push_back(device().allocate(32 * 1024));
  EXPECT_EQ(device().memory_stats().backend_allocations, after);
  for (void* p : blocks) device().free(p);
}

TEST_P(DeviceSuite, TrimGivesUnusedMemoryBack) {
  device().trim_memory();
  const size_t reserved = device().memory_stats().reserved_bytes;
  auto s = stream();
  device().free(device().allocate(1000));
  device().free(device().allocate(50 << 20, s.get()), s.get());
  s->synchronize();
  const size_t grown = device().memory_stats().reserved_bytes;
  EXPECT_GE(grown, reserved + (50 << 20));
  const size_t trimmed = device().trim_memory();
  EXPECT_EQ(trimmed, grown - device().memory_stats().reserved_bytes);
  EXPECT_LE(device().memory_stats().reserved_bytes, reserved);
}

TEST_P(DeviceSuite, TrimSparesMemoryInUseAndInFlight) {
  device().trim_memory();
  Block<uint32_t> used(device(), 1000);
  auto s = stream();
  auto gate = ops().hold(*s);
  auto* p = static_cast<uint32_t*>(device().allocate(9 << 20, s.get()));
  ops().fill(*s, p, (9 << 20) / 4, 1);
  device().free(p, s.get());
  device().trim_memory();
  EXPECT_GE(device().memory_stats().reserved_bytes, size_t{9} << 20);
  gate->open();
  s->synchronize();
  EXPECT_GE(device().trim_memory(), size_t{9} << 20);
}

TEST_P(DeviceSuite, WhatIsCachedAboveTheWatermarkGoesBackAfterTheWorkThatUsesIt) {
  constexpr size_t kWatermark = 8 << 20, kBytes = 20 << 20;
  device().trim_memory();
  const size_t before = device().memory_stats().watermark_bytes;
  device().set_memory_watermark(kWatermark);
  EXPECT_EQ(device().memory_stats().watermark_bytes, kWatermark);
  Block<uint32_t> wrong(device(), 1);
  auto s = stream(), other = stream();
  ops().fill(*other, wrong.get(), 1, 0);
  other->synchronize();
  for (uint32_t round = 0; round < 3; ++round) {
    auto gate = ops().hold(*s);
    auto* p = static_cast<uint32_t*>(device().allocate(kBytes, s.get()));
    ops().fill(*s, p, kBytes / 4, round);
    ops().check(*s, p, kBytes / 4, round, wrong.get());
    device().free(p, s.get());
    device().free(device().allocate(1));  // gives the pool a chance to release the block too early
    EXPECT_GE(device().memory_stats().reserved_bytes, kBytes);
    gate->open();
    s->synchronize();
    // The pool learns that the work has ended on a thread of the backend, or at the next allocation. Until
    // then the block counts as in flight, and the next round would take it again.
    const auto unused = [&] {
      const MemoryStats stats = device().memory_stats();
      return stats.cached_bytes + stats.in_flight_bytes;
    };
    while (unused() > kWatermark) device().free(device().allocate(1));
  }
  EXPECT_EQ(read(wrong.get()), 0u);
  EXPECT_GE(device().memory_stats().watermark_frees, 3u);
  const uint64_t frees = device().memory_stats().backend_frees;
  for (int i = 0; i < 100; ++i) device().free(device().allocate(1 << 20));
  EXPECT_EQ(device().memory_stats().backend_frees, frees) << "what is below the watermark stays";
  device().set_memory_watermark(before);
}

TEST_P(DeviceSuite, StatisticsAddUp) {
  device().reset_peak_memory();
  const MemoryStats start = device().memory_stats();
  EXPECT_EQ(start.peak_in_use_bytes, start.in_use_bytes);
  EXPECT_EQ(start.peak_reserved_bytes, start.reserved_bytes);
  void* a = device().allocate(10'000);
  void* b = device().allocate(20'000);
  device().free(a);
  void* c = device().allocate(1);
  MemoryStats now = device().memory_stats();
  EXPECT_EQ(now.in_use_bytes, start.in_use_bytes + 20'001);
  EXPECT_EQ(now.peak_in_use_bytes, start.in_use_bytes + 30'000);
  EXPECT_EQ(now.allocations, start.allocations + 3);
  EXPECT_EQ(now.allocations - start.allocations,
            now.cache_hits - start.cache_hits + now.backend_allocations - start.backend_allocations);
  EXPECT_GE(now.reserved_bytes, now.in_use_bytes + now.cached_bytes + now.in_flight_bytes);
  device().free(b);
  device().free(c);
  now = device().memory_stats();
  EXPECT_EQ(now.in_use_bytes, start.in_use_bytes);
  device().reset_peak_memory();
  EXPECT_EQ(device().memory_stats().peak_in_use_bytes, start.in_use_bytes);
}

TEST_P(DeviceSuite, ExhaustionSaysWhatWasAskedAndRecovers) {
  Block<char> used(device(), 1000);
  for (const size_t bytes : {device().properties().total_bytes, SIZE_MAX - 100}) {
    try {
      device().free(device().allocate(bytes + 1));
      FAIL() << "expected OutOfMemory";
    } catch (const OutOfMemory& e) {
      const std::string text = e.what();
      for (const std::string& part : {to_string(device().context()), std::to_string(bytes + 1),
                                      std::string("in use"), std::string("reserved"), std::string("limit")}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
      }
    }
  }
  Block<char> more(device(), 1000);
  EXPECT_NE(more.get(), nullptr);
}

TEST_P(DeviceSuite, ThreadsAllocateAtTheSameTime) {
  constexpr int kThreads = 4;
  const size_t before = device().memory_stats().in_use_bytes;
  Block<uint32_t> wrong(device(), 1);
  {
    auto s = stream();
    ops().fill(*s, wrong.get(), 1, 0);
    s->synchronize();
  }
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      auto s = stream();
      start.arrive_and_wait();
      for (uint32_t i = 0; i < 300; ++i) {
        const size_t n = 1 + random() % 3000;
        Stream* on = i % 3 == 0 ? nullptr : s.get();
        auto* p = static_cast<uint32_t*>(device().allocate(n * 4, on));
        ops().fill(*s, p, n, t * 1000 + i);
        ops().check(*s, p, n, t * 1000 + i, wrong.get());
        device().free(p, s.get());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(read(wrong.get()), 0u);
  EXPECT_EQ(device().memory_stats().in_use_bytes, before + sizeof(uint32_t));
}

}  // namespace mx::conformance
