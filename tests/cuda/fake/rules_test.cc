// The rules of the backend of GPUs that docs/device.md lists, each on the stand-in for CUDA.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/capture.h"
#include "engine/device/registry.h"
#include "engine/device/virtual/virtual_device.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/device/cuda_ops.h"

namespace mx::conformance {
namespace {

class FakeCudaRules : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cudaSuccess, cudaGetLastError()) << "a last error was left behind"; }

  /// Appends a kernel that ends when `open_` becomes true.
  void hold(Stream& stream) {
    stream.submit([this](KernelContext& context) {
      fake_cuda::launch(nullptr, 1, 1, 0, static_cast<cudaStream_t>(context.native_stream()),
                        [this] { return open_.load(); });
    });
  }

  std::atomic<bool> open_{false};
};

void await(const EventPoint& point) {
  while (point.query() == EventStatus::pending) std::this_thread::yield();
}

// Runs the body in a process of its own, where no GPU has been used; it ends with the number of failures.
void in_fresh_process(const std::function<int()>& body) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::_Exit(body()), ::testing::ExitedWithCode(0), "");
}

TEST_F(FakeCudaRules, WorkOfGpu1CreatesNoContextOnGpu0) {
  in_fresh_process([] {
    Device& device = get_device(gpu(1));
    auto stream = device.new_stream();
    void* const memory = device.allocate(256, stream.get());
    auto* const words = static_cast<uint32_t*>(memory);
    cuda_ops().fill(*stream, words, 64, 1);
    auto event = device.new_event();
    stream->record(*event);
    std::thread([&] { await(*event->latest()); }).join();  // a thread that has chosen no device
    std::atomic<bool> called{false};
    cuda_ops().fill(*stream, words, 64, 2);
    stream->notify([&](std::exception_ptr) { called = true; });  // the poller
    while (!called) std::this_thread::yield();
    auto builder = device.new_graph_builder();
    builder->add({}, [&](Stream& capture) { cuda_ops().add(capture, words, 64, 1); });
    auto graph = builder->finish();
    builder.reset();
    graph->launch(*stream);
    uint32_t value = 0;
    device.copy_async(&value, cpu(), words, gpu(1), 4, *stream);
    stream->synchronize();
    graph.reset();
    auto other = device.new_stream(StreamKind::comm);
    other->wait(*event);
    other.reset();
    device.free(memory, stream.get());
    stream.reset();
    device.trim_memory();
    int current = -1;
    (void)cudaGetDevice(&current);
    return (value != 3) + 2 * fake_cuda::has_context(0) + 4 * (current != 0) +
           8 * (cudaGetLastError() != cudaSuccess);
  });
}

TEST_F(FakeCudaRules, ACaptureOfOtherCodeInGlobalModeRestrictsNothingAndStaysValid) {
  Device& device = get_device(gpu(0));
  auto stream = device.new_stream();
  cudaStream_t foreign = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking));
  ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(foreign, cudaStreamCaptureModeGlobal));
  std::thread([&] {  // every call that a capture in global mode forbids to all threads
    hold(*stream);
    auto event = device.new_event();
    stream->record(*event);
    EXPECT_EQ(EventStatus::pending, event->query());
    open_ = true;
    await(*event->latest());
    EXPECT_EQ(EventStatus::complete, event->query());
    stream->submit([](KernelContext&) { throw std::runtime_error("a task"); });
    EXPECT_THROW(stream->synchronize(), std::runtime_error);
    device.free(device.allocate(size_t{100} << 20));
    device.trim_memory();
    auto builder = device.new_graph_builder();
    builder->add({}, [](Stream&) {});
    builder->finish();
    stream.reset();
  })
      .join();
  EXPECT_EQ(nullptr, device.lost());
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(foreign, &graph));
  EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
  EXPECT_EQ(cudaSuccess, cudaStreamDestroy(foreign));
}

/// A launch that CUDA refuses; its error stays as the thread's last one.
void launch_badly(KernelContext& context) {
  fake_cuda::launch(nullptr, 1, 5000, 0, static_cast<cudaStream_t>(context.native_stream()),
                    [] { return true; });
}

TEST_F(FakeCudaRules, NoPathLeavesALastErrorOrBlamesATaskForAnOldOne) {
  Device& device = get_device(gpu(0));
  auto stream = device.new_stream();
  stream->submit(launch_badly);
  EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
  EXPECT_THROW(stream->synchronize(), DeviceError);
  stream->submit([](KernelContext& context) {
    launch_badly(context);
    throw std::runtime_error("a task");
  });
  EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  for (const bool throws : {false, true}) {
    auto builder = device.new_graph_builder();
    EXPECT_ANY_THROW(builder->add({}, [&](Stream& capture) {
      capture.submit([&](KernelContext& context) {
        launch_badly(context);
        if (throws) throw std::runtime_error("a task");
      });
    }));
    EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
  }
  fake_cuda::launch(nullptr, 1, 5000, 0, nullptr, [] { return true; });  // of other code
  ASSERT_NE(cudaSuccess, cudaPeekAtLastError());
  auto builder = device.new_graph_builder();
  EXPECT_NO_THROW(builder->add({}, [](Stream& capture) { capture.submit([](KernelContext&) {}); }));
  fake_cuda::launch(nullptr, 1, 5000, 0, nullptr, [] { return true; });
  stream->submit([](KernelContext&) {});
  EXPECT_NO_THROW(stream->synchronize());
  EXPECT_THROW(device.allocate(size_t{1} << 40), OutOfMemory);
}

TEST_F(FakeCudaRules, ASmallResultInPlainMemoryDoesNotBlockTheIssuer) {
  Device& device = get_device(gpu(0));
  auto stream = device.new_stream(), other = device.new_stream();
  Block<uint32_t> block(device, 16), copy(device, 16);
  cuda_ops().fill(*stream, block.get(), 16, 1);
  hold(*stream);
  cuda_ops().fill(*stream, block.get(), 16, 7);
  std::vector<uint32_t> plain(16);
  device.copy_async(plain.data(), cpu(), block.get(), gpu(0), 64, *stream);  // returns while the kernel waits
  auto event = device.new_event();
  stream->record(*event);
  EXPECT_EQ(EventStatus::pending, event->query());
  EXPECT_EQ(std::vector<uint32_t>(16), plain);
  open_ = true;
  // A copy from there, ordered after it on the device only.
  other->wait(*event);
  device.copy_async(copy.get(), gpu(0), plain.data(), cpu(), 64, *other);
  std::vector<uint32_t> back(16);
  device.copy_async(back.data(), cpu(), copy.get(), gpu(0), 64, *other);
  other->synchronize();
  EXPECT_EQ(std::vector<uint32_t>(16, 7), plain);
  EXPECT_EQ(plain, back);
}

/// Random copies between blocks of a GPU and plain memory of the host, small and large, and changes of the
/// blocks, on some streams. Returns all contents. All programs with one seed have the same steps.
std::vector<uint32_t> copies_through_plain_memory(uint64_t seed, size_t streams) {
  constexpr size_t kBlocks = 6, kWords = 1024;
  Device& device = get_device(gpu(0));
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<Stream>> lanes;
  for (size_t i = 0; i < streams; ++i) lanes.push_back(device.new_stream());
  std::vector<std::unique_ptr<Block<uint32_t>>> blocks;
  std::vector<uint32_t> host(kBlocks * kWords);
  std::vector<std::shared_ptr<EventPoint>> last;  // of each block, then of each part of the host's memory
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(std::make_unique<Block<uint32_t>>(device, kWords));
    cuda_ops().fill(*lanes[0], blocks[i]->get(), kWords, static_cast<uint32_t>(i));
    last.push_back(lanes[0]->mark());
  }
  last.resize(2 * kBlocks);
  for (int step = 0; step < 600; ++step) {
    const size_t block = random() % kBlocks, part = random() % kBlocks, kind = random() % 3;
    const size_t words = random() % 2 == 0 ? 1 + random() % 16 : kWords, at = random() % (kWords - words + 1);
    Stream& stream = *lanes[random() % streams];
    for (const size_t used : {block, kBlocks + part})
      if (last[used] != nullptr) stream.wait_point(last[used]);
    uint32_t* const there = host.data() + part * kWords + at;
    uint32_t* const here = blocks[block]->get() + at;
    if (kind == 0) device.copy_async(there, cpu(), here, gpu(0), words * 4, stream);
    if (kind == 1) device.copy_async(here, gpu(0), there, cpu(), words * 4, stream);
    if (kind == 2) cuda_ops().add(stream, here, words, static_cast<uint32_t>(step));
    last[block] = last[kBlocks + part] = stream.mark();
  }
  for (const auto& lane : lanes) lane->synchronize();
  std::vector<uint32_t> all = host;
  std::vector<uint32_t> content(kWords);
  for (const auto& block : blocks) {
    device.copy_async(content.data(), cpu(), block->get(), gpu(0), kWords * 4, *lanes[0]);
    lanes[0]->synchronize();
    all.insert(all.end(), content.begin(), content.end());
  }
  return all;
}

TEST_F(FakeCudaRules, CopiesThroughPlainMemoryHaveTheOrderOfTheirStreams) {
  for (const uint64_t seed : {1u, 2u, 3u, 4u}) {
    EXPECT_EQ(copies_through_plain_memory(seed, 1), copies_through_plain_memory(seed, 4)) << seed;
  }
}

TEST_F(FakeCudaRules, ASmallResultThatADeviceNoLongerDeliversBlocksNobody) {
  in_fresh_process([] {
    Device& device = get_device(gpu(0));
    auto* const stream = device.new_stream().release();
    auto* const block = new Block<uint32_t>(device, 16);
    auto gate = cuda_ops().hold(*stream);
    static uint32_t plain[16];
    device.copy_async(plain, cpu(), block->get(), gpu(0), 64, *stream);
    fake_cuda::lose(0, cudaErrorIllegalAddress);
    device.copy_async(block->get(), gpu(0), plain, cpu(), 64, *stream);
    return device.lost() == nullptr;
  });
}

TEST_F(FakeCudaRules, NodesOfAGraphHaveThePriorityOfTheirKind) {
  Device& device = get_device(gpu(0));
  Block<uint32_t> block(device, 16);
  auto builder = device.new_graph_builder();
  auto* const capturing = dynamic_cast<CapturingBuilder*>(builder.get());
  ASSERT_NE(nullptr, capturing);
  for (const StreamKind kind : {StreamKind::compute, StreamKind::comm, StreamKind::copy_in}) {
    capturing->use_kind(kind);
    builder->add({}, [&](Stream& stream) {
      EXPECT_EQ(kind, stream.kind());
      cuda_ops().add(stream, block.get(), 16, 1);
    });
  }
  auto graph = builder->finish();
  int least = 0, greatest = 0;
  ASSERT_EQ(cudaSuccess, cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (const StreamKind kind : {StreamKind::compute, StreamKind::comm}) {
    auto stream = device.new_stream(kind);
    graph->launch(*stream);
    stream->synchronize();
    EXPECT_EQ((std::vector<int>{least, greatest, least}), fake_cuda::graph_priorities());
  }
}

TEST_F(FakeCudaRules, PeersMayAccessMemoryOfThePoolFromBeforeAndAfter) {
  Device &first = get_device(gpu(0)), &second = get_device(gpu(1));
  Block<uint32_t> a(first, 16), b(second, 16);
  auto stream = first.new_stream();
  first.copy_async(b.get(), gpu(1), a.get(), gpu(0), 64, *stream);
  stream->synchronize();
  constexpr size_t kFresh = size_t{300} << 20;
  void* const c = first.allocate(kFresh);
  void* const d = second.allocate(kFresh);
  for (const void* memory : {static_cast<const void*>(a.get()), static_cast<const void*>(c)})
    EXPECT_TRUE(fake_cuda::may_access(1, memory));
  for (const void* memory : {static_cast<const void*>(b.get()), static_cast<const void*>(d)})
    EXPECT_TRUE(fake_cuda::may_access(0, memory));
  first.free(c);
  second.free(d);
}

/// A point that the test reaches, or whose callback is refused.
class TestPoint final : public EventPoint {
 public:
  explicit TestPoint(bool throws) : throws_(throws) {}
  EventStatus query() const noexcept override { return EventStatus::pending; }
  std::exception_ptr error() const noexcept override { return nullptr; }
  void when_reached(std::function<void()> callback) override {
    if (throws_) throw std::bad_alloc();
    callback_ = std::move(callback);
  }
  void reach() { callback_(); }

 private:
  const bool throws_;
  std::function<void()> callback_;
};

TEST_F(FakeCudaRules, AStreamNeverHangsInAWaitForAnotherKindOfDevice) {
  Device& device = get_device(gpu(0));
  auto stream = device.new_stream();
  // A callback that cannot be registered releases the stream.
  EXPECT_THROW(stream->wait_point(std::make_shared<TestPoint>(true)), std::bad_alloc);
  stream->synchronize();
  auto point = std::make_shared<TestPoint>(false);
  stream->wait_point(point);
  auto event = device.new_event();
  stream->record(*event);
  EXPECT_EQ(EventStatus::pending, event->query());
  point->reach();
  stream->synchronize();
  // A device that is lost, and one whose stream is destroyed, reach their points.
  for (const bool lose : {true, false}) {
    Device& other = get_device(virt(0));
    auto far = other.new_stream();
    std::atomic<bool> open{false};
    far->submit([&](KernelContext&) {
      while (!open) std::this_thread::yield();
    });
    auto reached = other.new_event();
    far->record(*reached);
    stream->wait(*reached);
    if (lose) virtual_device(0).lose();
    open = true;
    far.reset();
    stream->synchronize();
    if (lose) virtual_device(0).restore();
  }
}

}  // namespace
}  // namespace mx::conformance
