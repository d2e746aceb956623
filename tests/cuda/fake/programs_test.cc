// The backend of GPUs on the stand-in for CUDA: random programs, and devices that fail.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/registry.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/device/cuda_ops.h"

namespace mx::conformance {
namespace {

constexpr size_t kN = 64;  // words of a block

/// Blocks of words on two GPUs, and what the host knows of them.
class Program {
 public:
  /// `waits`: without them the program is wrong.
  explicit Program(uint64_t seed, bool waits = true) : waits_(waits), random_(seed) {
    for (int d = 0; d < 2; ++d)
      for (int i = 0; i < kBlocks; ++i)
        blocks_.push_back(std::make_unique<Block<uint32_t>>(get_device(gpu(d)), kN));
  }

  /// Runs `operations` operations on `streams` streams of each GPU; returns the contents of all blocks. All
  /// programs with one seed have the same operations.
  std::vector<uint32_t> run(int operations, size_t streams) {
    for (int d = 0; d < 2; ++d)
      for (size_t s = 0; s < streams; ++s) streams_.push_back(get_device(gpu(d)).new_stream());
    events_.resize(blocks_.size());
    readers_.resize(blocks_.size());
    for (size_t b = 0; b < blocks_.size(); ++b) {
      Stream& stream = on(b, 0, streams);
      cuda_ops().fill(stream, blocks_[b]->get(), kN, static_cast<uint32_t>(b));
      wrote(b, stream);
    }
    for (int i = 0; i < operations; ++i) step(streams);
    std::vector<uint32_t> all(blocks_.size() * kN);
    for (auto& stream : streams_) stream->synchronize();
    for (size_t b = 0; b < blocks_.size(); ++b) {
      Device& device = get_device(context_of(b));
      device.copy_async(all.data() + b * kN, cpu(), blocks_[b]->get(), context_of(b), kN * 4, *streams_[0]);
    }
    streams_[0]->synchronize();
    return all;
  }

 private:
  static constexpr int kBlocks = 12;

  static Context context_of(size_t block) { return gpu(static_cast<int>(block) / kBlocks); }
  Stream& on(size_t block, size_t choice, size_t streams) {
    return *streams_[block / kBlocks * streams + choice % streams];
  }

  void step(size_t streams) {
    const size_t target = random_() % blocks_.size(), source = random_() % blocks_.size();
    const auto value = static_cast<uint32_t>(random_() % 1000);
    const uint64_t what = random_() % 4, choice = random_();
    Stream& stream = on(target, choice, streams);
    wait_to_write(target, stream);
    if (what == 0) {
      cuda_ops().fill(stream, blocks_[target]->get(), kN, value);
    } else if (what == 1 || target == source) {
      cuda_ops().add(stream, blocks_[target]->get(), kN, value);
    } else {
      if (waits_ && events_[source] != nullptr) stream.wait_point(events_[source]);
      stream.device().copy_async(blocks_[target]->get(), context_of(target), blocks_[source]->get(),
                                 context_of(source), kN * 4, stream);
      readers_[source].push_back(stream.mark());
    }
    wrote(target, stream);
  }

  void wait_to_write(size_t block, Stream& stream) {
    if (!waits_) return;
    if (events_[block] != nullptr) stream.wait_point(events_[block]);
    for (const auto& reader : readers_[block]) stream.wait_point(reader);
    readers_[block].clear();
  }
  void wrote(size_t block, Stream& stream) {
    auto event = stream.device().new_event();
    stream.record(*event);
    events_[block] = event->latest();
  }

  const bool waits_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Block<uint32_t>>> blocks_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::shared_ptr<EventPoint>> events_;                // the latest write of each block
  std::vector<std::vector<std::shared_ptr<EventPoint>>> readers_;  // since then
};

TEST(FakeCudaPrograms, FourStreamsOfTwoGpusGiveTheBitsOfOneStream) {
  constexpr int kOperations = 10'000;
  for (const uint64_t seed : {1u, 2u}) {
    const std::vector<uint32_t> expected = Program(seed).run(kOperations, 1);
    EXPECT_EQ(expected, Program(seed).run(kOperations, 4)) << "seed " << seed;
  }
}

TEST(FakeCudaPrograms, AProgramWithoutWaitsGivesOtherBits) {
  EXPECT_NE(Program(3).run(2000, 1), Program(3, false).run(2000, 4));
}

TEST(FakeCudaPrograms, ThereIsMemoryAgainAfterAnAllocationThatFailed) {
  Device& device = get_device(gpu(0));
  device.trim_memory();
  fake_cuda::fail_allocation(0, 1);
  EXPECT_THROW(device.allocate(size_t{200} << 20, nullptr), OutOfMemory);
  void* const memory = device.allocate(size_t{200} << 20, nullptr);
  device.free(memory, nullptr);
  EXPECT_EQ(nullptr, device.lost());
}

TEST(FakeCudaPrograms, MoreMemoryThanTheDeviceHasIsRefused) {
  Device& device = get_device(gpu(1));
  EXPECT_THROW(device.allocate(size_t{64} << 30, nullptr), OutOfMemory);
  Block<uint32_t> block(device, 10);
  auto stream = device.new_stream();
  cuda_ops().fill(*stream, block.get(), 10, 1);
  stream->synchronize();
}

// In a process of its own, because the device stays lost.
[[noreturn]] void lose_first_device(bool by_a_kernel) {
  int wrong = 0;
  const auto expect = [&](const char* what, bool right) {
    if (!right) std::fprintf(stderr, "expected %s\n", what), ++wrong;
  };
  Device &lost = get_device(gpu(0)), &other = get_device(gpu(1));
  {
    auto stream = lost.new_stream(), beside = other.new_stream();
    auto *bad = new Block<uint32_t>(lost, kN), *good = new Block<uint32_t>(other, kN);
    auto event = lost.new_event();
    if (by_a_kernel) {
      cuda_ops().fill(*stream, nullptr, kN, 1);
    } else {
      auto gate = cuda_ops().hold(*stream);
      fake_cuda::lose(0, cudaErrorECCUncorrectable);
    }
    stream->record(*event);
    while (event->query() == EventStatus::pending) std::this_thread::yield();
    expect("an event that fails", event->query() == EventStatus::failed);
    beside->wait(*event);  // returns, and does not wait for ever
    cuda_ops().fill(*beside, good->get(), kN, 5);
    beside->synchronize();
    uint32_t value = 0;
    other.copy_async(&value, cpu(), good->get(), gpu(1), 4, *beside);
    beside->synchronize();
    expect("values of the other device", value == 5);
    expect("a lost device", lost.lost() != nullptr && other.lost() == nullptr);
    try {
      lost.allocate(100, nullptr);
      expect("an allocation that fails", false);
    } catch (const DeviceError& error) {
      expect("an error that names the device",
             std::string(error.what()).find("gpu(0) is lost") != std::string::npos);
    }
    // A stream that is made later finds the loss, too.
    try {
      lost.new_stream();
    } catch (const DeviceError&) {
    }
    try {
      lost.copy_async(bad->get(), gpu(0), bad->get() + 8, gpu(0), 4, *stream);
      stream->synchronize();
      expect("synchronize() that fails", false);
    } catch (const DeviceError&) {
    }
    bool called = false;
    std::mutex mutex;
    std::condition_variable condition;
    stream->notify([&](std::exception_ptr error) {
      const std::lock_guard lock(mutex);
      called = error != nullptr;
      condition.notify_one();
    });
    std::unique_lock lock(mutex);
    condition.wait(lock, [&] { return called; });
    delete good;
  }
  std::_Exit(wrong == 0 ? 0 : 1);
}

TEST(FakeCudaPrograms, ALostDeviceLeavesTheProcessAndTheOtherDeviceWorking) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(lose_first_device(false), ::testing::ExitedWithCode(0), "");
}

TEST(FakeCudaPrograms, AFaultOfAKernelLeavesTheProcessAndTheOtherDeviceWorking) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(lose_first_device(true), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mx::conformance
