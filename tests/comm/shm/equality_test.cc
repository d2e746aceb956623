// Every path of the data (slots, direct, staged) gives the bits of the serial fold, in place or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "comm/fold.h"
#include "comm/shm/arena.h"
#include "comm/shm/shm_communicator.h"
#include "tests/comm/repeated.h"

namespace mx::comm {
namespace {

// Runs `body(communicator)` on one thread per rank.
template <class Body>
void on_threads(int size, const Body& body) {
  const ShmGroup memory(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(*memory.join(rank));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// What rank `rank` contributes; the same whoever computes it.
std::vector<float> input_of(int rank, size_t count) {
  std::minstd_rand random(static_cast<unsigned>(rank + 1));
  std::vector<float> values(std::min<size_t>(count, 4093));
  for (float& v : values) v = static_cast<float>(random()) * 1e-6f - 1000.0f;
  return test::repeated(std::move(values), count);
}

struct Buffer {
  std::shared_ptr<void> shared;
  std::vector<float> own;
  float* data = nullptr;
};

Buffer make_buffer(Communicator& group, bool arena, size_t count) {
  Buffer buffer;
  if (arena) {
    buffer.shared = group.allocate(count * sizeof(float));
    buffer.data = static_cast<float*>(buffer.shared.get());
  } else {
    buffer.own.resize(count + 1);
    buffer.data = buffer.own.data();
  }
  return buffer;
}

constexpr size_t kCounts[] = {1, 5, 4096, 4097, 16'384, 100'003, 400'000};

struct Case {
  int size;
  bool arena, in_place;
};

class ShmPaths : public ::testing::TestWithParam<Case> {};

TEST_P(ShmPaths, GiveTheBitsOfTheSerialFold) {
  const auto [size, arena, in_place] = GetParam();
  on_threads(size, [&, size = size, arena = arena, in_place = in_place](Communicator& group) {
    const int rank = group.rank();
    for (const size_t count : kCounts) {
      std::vector<std::vector<float>> inputs;
      std::vector<const void*> pointers;
      for (int r = 0; r < size; ++r) inputs.push_back(input_of(r, count));
      for (const auto& input : inputs) pointers.push_back(input.data());
      std::vector<float> sum(count);
      fold_ranks(sum.data(), pointers.data(), size, count, Type::f32, Reduction::sum);
      const std::vector<float>& own = inputs[static_cast<size_t>(rank)];
      const Slice slice = slice_of(count, size, rank);
      const auto equal = [&](const float* got, const float* expected, size_t n, const char* what) {
        EXPECT_EQ(std::memcmp(got, expected, n * sizeof(float)), 0)
            << what << " of " << count << " on rank " << rank;
      };
      const Buffer in = make_buffer(group, arena, count);
      const Buffer other = make_buffer(group, arena, count);
      float* const out = in_place ? in.data : other.data;
      const auto fill = [&] { std::copy(own.begin(), own.end(), in.data); };

      fill();
      group.allreduce(in.data, out, count, Type::f32);
      equal(out, sum.data(), count, "allreduce");

      fill();
      group.reduce_scatter(in.data, out, count, Type::f32);
      equal(out, sum.data() + slice.begin, slice.count, "reduce_scatter");
      fill();
      group.reduce_scatter(in.data, in.data + slice.begin, count, Type::f32);
      equal(in.data + slice.begin, sum.data() + slice.begin, slice.count, "reduce_scatter into its slice");

      std::copy_n(sum.begin() + static_cast<ptrdiff_t>(slice.begin), slice.count, in.data);
      group.allgather(in.data, out, count, Type::f32);
      equal(out, sum.data(), count, "allgather");
      std::copy_n(sum.begin() + static_cast<ptrdiff_t>(slice.begin), slice.count, out + slice.begin);
      group.allgather(out + slice.begin, out, count, Type::f32);
      equal(out, sum.data(), count, "allgather from its slice");

      const int root = size - 1;
      fill();
      group.broadcast(rank == root ? in.data : nullptr, out, count, Type::f32, root);
      equal(out, inputs[static_cast<size_t>(root)].data(), count, "broadcast");

      const size_t block = count / static_cast<size_t>(size);
      fill();
      group.all_to_all(in.data, out, block, Type::f32);
      for (int r = 0; r < size; ++r)
        equal(out + static_cast<size_t>(r) * block,
              inputs[static_cast<size_t>(r)].data() + static_cast<size_t>(rank) * block, block, "all_to_all");

      if (size > 1 && rank < 2) {
        fill();
        if (rank == 0) group.send(in.data, count, Type::f32, 1);
        if (rank == 1) {
          group.receive(out, count, Type::f32, 0);
          equal(out, inputs[0].data(), count, "receive");
        }
      }
    }
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int size : {1, 2, 3, 5})
    for (const bool arena : {false, true})
      for (const bool in_place : {false, true}) all.push_back({size, arena, in_place});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, ShmPaths, ::testing::ValuesIn(cases()), [](const auto& tested) {
  return "Ranks" + std::to_string(tested.param.size) + (tested.param.arena ? "Arena" : "Plain") +
         (tested.param.in_place ? "InPlace" : "");
});

// The size of a window comes from another process. With a wrong one, ranks would write beyond the file.
TEST(ShmArena, AFileOfAnotherSizeThanItsWindowsIsRefused) {
  constexpr size_t kWindow = 1 << 16;
  for (const size_t window : {kWindow / 2, kWindow + 4096, 3 * kWindow, size_t{0}, SIZE_MAX / 2 + 1})
    EXPECT_THROW(shm::Arena::map(shm::Arena::create(2, kWindow), 0, 2, window), ProtocolError) << window;
  EXPECT_NE(shm::Arena::map(shm::Arena::create(2, kWindow), 0, 2, kWindow), nullptr);
}

TEST(ShmArena, MixedBuffersAreStaged) {
  on_threads(3, [](Communicator& group) {
    constexpr size_t kCount = 50'000;
    const Buffer shared = make_buffer(group, true, kCount), own = make_buffer(group, false, kCount);
    float* const data = group.rank() == 1 ? own.data : shared.data;
    std::fill_n(data, kCount, static_cast<float>(group.rank()));
    group.allreduce(data, data, kCount, Type::f32);
    EXPECT_EQ(data[0], 3);
    EXPECT_EQ(data[kCount - 1], 3);
  });
}

TEST(ShmArena, FreedMemoryIsUsedAgainAndMemoryOutlivesTheCommunicator) {
  const ShmGroup memory(1, {.arena_window_bytes = 1 << 20});
  std::shared_ptr<void> kept;
  {
    const std::shared_ptr<Communicator> group = memory.join(0);
    kept = group->allocate(1000);
    const std::shared_ptr<void> first = group->allocate(300'000);
    void* const address = group->allocate(500'000).get();
    EXPECT_EQ(group->allocate(500'000).get(), address);
    std::memset(first.get(), 7, 300'000);
  }
  std::memset(kept.get(), 1, 1000);
}

}  // namespace
}  // namespace mx::comm
