#include "comm/shm/rings.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/shm/region.h"
#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace mx::comm::shm {
namespace {

std::vector<std::unique_ptr<Rings>> rings_of(int size) {
  const SharedFiles files = Rings::create(size);
  std::vector<std::unique_ptr<Rings>> rings;
  for (int rank = 0; rank < size; ++rank) rings.push_back(std::make_unique<Rings>(files, rank, size));
  return rings;
}

size_t write_bytes(Rings& rings, int peer, const std::vector<uint8_t>& bytes, size_t begin, size_t count) {
  // iovec has no const form.
  const iovec part{const_cast<uint8_t*>(bytes.data() + begin), std::min(count, bytes.size() - begin)};
  return rings.write(peer, &part, 1);
}

size_t read_bytes(Rings& rings, int peer, std::vector<uint8_t>& bytes, size_t begin, size_t count) {
  const iovec part{bytes.data() + begin, std::min(count, bytes.size() - begin)};
  return rings.read(peer, &part, 1);
}

bool is_rung(const Rings& rings) {
  pollfd bell{rings.bell(), POLLIN, 0};
  return poll(&bell, 1, 0) == 1;
}

std::vector<uint8_t> ring_pattern(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> data(bytes);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  return data;
}

TEST(ShmRings, CarryBytesBetweenAllPairsInOrder) {
  for (const int size : {2, 3, 9}) {
    auto all = rings_of(size);
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to) {
        if (from == to) continue;
        std::mt19937 random(static_cast<unsigned>(from * size + to));
        Rings &writer = *all[static_cast<size_t>(from)], &reader = *all[static_cast<size_t>(to)];
        const auto out = ring_pattern(3 * writer.ring_bytes() + 17, static_cast<unsigned>(from));
        std::vector<uint8_t> in(out.size());
        size_t written = 0, taken = 0;
        while (taken < in.size()) {
          // From no bytes to more than the ring holds.
          written += write_bytes(writer, to, out, written, random() % (2 * writer.ring_bytes()));
          EXPECT_EQ(reader.is_readable(from), written > taken);
          EXPECT_EQ(writer.is_writable(to), written - taken < writer.ring_bytes());
          taken += read_bytes(reader, from, in, taken, random() % (2 * writer.ring_bytes()));
        }
        EXPECT_EQ(in, out) << from << " to " << to << " of " << size;
      }
  }
}

TEST(ShmRings, ManyRanksUseSmallerRings) {
  const auto few = rings_of(2), many = rings_of(64);
  EXPECT_GT(few[0]->ring_bytes(), many[0]->ring_bytes());
  EXPECT_LE(64 * 63 * many[0]->ring_bytes(), size_t{64} << 20);
}

TEST(ShmRings, AWriterWakesASleepingReaderOnce) {
  auto all = rings_of(3);
  const auto bytes = ring_pattern(100, 1);
  write_bytes(*all[1], 0, bytes, 0, 10);
  EXPECT_FALSE(is_rung(*all[0])) << "nobody sleeps";
  EXPECT_FALSE(all[0]->sleep_until_readable(1)) << "bytes are there";
  EXPECT_TRUE(all[0]->sleep_until_readable(2));
  write_bytes(*all[2], 1, bytes, 0, 10);
  EXPECT_FALSE(is_rung(*all[0])) << "the bytes are for another rank";
  write_bytes(*all[2], 0, bytes, 0, 10);
  EXPECT_TRUE(is_rung(*all[0]));
  all[0]->awake();
  EXPECT_FALSE(is_rung(*all[0]));
  write_bytes(*all[2], 0, bytes, 0, 10);
  EXPECT_FALSE(is_rung(*all[0])) << "it is awake";
}

TEST(ShmRings, AReaderWakesASleepingWriterWhenHalfOfTheRingIsFree) {
  auto all = rings_of(2);
  const size_t ring = all[0]->ring_bytes();
  const auto out = ring_pattern(ring, 1);
  std::vector<uint8_t> in(ring);
  EXPECT_EQ(write_bytes(*all[0], 1, out, 0, ring / 2), ring / 2);
  EXPECT_FALSE(all[0]->sleep_until_writable(1)) << "there is room";
  all[0]->awake();
  EXPECT_EQ(write_bytes(*all[0], 1, out, ring / 2, ring), ring / 2);
  EXPECT_TRUE(all[0]->sleep_until_writable(1));
  EXPECT_EQ(read_bytes(*all[1], 0, in, 0, ring / 2 - 1), ring / 2 - 1);
  EXPECT_FALSE(is_rung(*all[0]));
  read_bytes(*all[1], 0, in, ring / 2 - 1, 1);
  EXPECT_TRUE(is_rung(*all[0]));
}

// Each side sleeps at every chance, so a bell that is lost would leave both asleep.
TEST(ShmRings, NoBellIsLost) {
  auto all = rings_of(2);
  const auto out = ring_pattern(16 * all[0]->ring_bytes() + 5, 2);
  std::vector<uint8_t> in(out.size());
  const auto sleep = [](Rings& rings, bool announced) {
    pollfd bell{rings.bell(), POLLIN, 0};
    if (announced) {
      EXPECT_EQ(poll(&bell, 1, 60'000), 1) << "it was not woken";
    }
    rings.awake();
  };
  std::thread writer([&] {
    std::mt19937 random(3);
    for (size_t written = 0; written < out.size();) {
      written += write_bytes(*all[0], 1, out, written, 1 + random() % 100'000);
      if (written < out.size() && !all[0]->is_writable(1)) sleep(*all[0], all[0]->sleep_until_writable(1));
    }
  });
  std::mt19937 random(4);
  for (size_t taken = 0; taken < in.size();) {
    taken += read_bytes(*all[1], 0, in, taken, 1 + random() % 100'000);
    if (taken < in.size() && !all[1]->is_readable(0)) sleep(*all[1], all[1]->sleep_until_readable(0));
  }
  writer.join();
  EXPECT_EQ(in, out);
}

TEST(ShmRings, RefuseMemoryOfAnotherGroup) {
  SharedFiles files = Rings::create(3);
  EXPECT_THROW(Rings(files, 0, 2), ProtocolError);
  files.bells.pop_back();
  EXPECT_THROW(Rings(files, 0, 3), ProtocolError);
}

TEST(ShmRings, ImpossibleCountersAreAnError) {
  const SharedFiles files = Rings::create(2);
  Rings writer(files, 0, 2), reader(files, 1, 2);
  // Everything behind the header, so all counters, becomes different large numbers.
  constexpr size_t kHeaderWords = kPage / sizeof(uint64_t);
  struct stat status {};
  ASSERT_EQ(fstat(files.region.get(), &status), 0);
  const auto bytes = static_cast<size_t>(status.st_size);
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, files.region.get(), 0);
  ASSERT_NE(base, MAP_FAILED);
  auto* const words = static_cast<uint64_t*>(base);
  for (size_t i = kHeaderWords; i < bytes / sizeof(uint64_t); ++i) words[i] = static_cast<uint64_t>(i) << 32;
  munmap(base, bytes);
  std::vector<uint8_t> in(100);
  test::expect_error<ProtocolError>("between two ranks", [&] { read_bytes(reader, 0, in, 0, in.size()); });
  write_bytes(writer, 1, in, 0, in.size());  // stays within the ring
}

TEST(ShmRings, TooManyRanksAreAnError) {
  test::expect_error<CommunicationError>("got 241", [] { Rings::create(Rings::kMostRanks + 1); });
}

}  // namespace
}  // namespace mx::comm::shm
