// Streams, events and memory: what waits for what. Source: CUDA Runtime API, "Event Management", "Stream
// Management", "API synchronization behavior"; CUDA Programming Guide, "Implicit Synchronization" and "Lazy
// Loading". Where the documentation allows both, the test states what a GPU did.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/facts/facts.h"

namespace mx::facts {
namespace {

class Streams : public Facts {};

TEST_F(Streams, AnEventThatWasNeverRecordedIsComplete) {
  EventHandle event;
  StreamHandle stream;
  EXPECT_SUCCESS(cudaEventQuery(event));
  EXPECT_SUCCESS(cudaEventSynchronize(event));
  EXPECT_SUCCESS(cudaStreamWaitEvent(stream, event, 0));
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
}

TEST_F(Streams, AWaitIsForTheRecordingAtTheTimeOfTheCall) {
  EventHandle event;
  StreamHandle waiting, quick;
  Words word;
  EXPECT_SUCCESS(cudaEventRecord(event, quick));
  EXPECT_SUCCESS(cudaStreamWaitEvent(waiting, event, 0));
  BusyStream busy;
  EXPECT_SUCCESS(cudaEventRecord(event, busy));
  launch_write(word.get(), 1, waiting);
  EXPECT_SUCCESS(cudaStreamSynchronize(waiting));  // although the later recording is not reached
  EXPECT_EQ(1u, word[0]);
  EXPECT_CODE(cudaErrorNotReady, cudaEventQuery(event));
}

TEST_F(Streams, AnEventMayBeDestroyedAsSoonAsAStreamWaitsForIt) {
  StreamHandle waiting;
  Words word;
  BusyStream busy;
  cudaEvent_t event = nullptr;
  EXPECT_SUCCESS(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  EXPECT_SUCCESS(cudaEventRecord(event, busy));
  EXPECT_SUCCESS(cudaStreamWaitEvent(waiting, event, 0));
  EXPECT_SUCCESS(cudaEventDestroy(event));
  launch_write(word.get(), 1, waiting);
  EXPECT_CODE(cudaErrorNotReady, cudaStreamQuery(waiting));
  busy.open();
  EXPECT_SUCCESS(cudaStreamSynchronize(waiting));
  EXPECT_EQ(1u, word[0]);
}

TEST_F(Streams, ADestroyedStreamFinishesItsWork) {
  Words words(2);
  cudaStream_t stream = nullptr;
  EXPECT_SUCCESS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  launch_gate(words.get(), stream);
  launch_write(words.get() + 1, 1, stream);
  EXPECT_SUCCESS(cudaStreamDestroy(stream));  // returns although the stream is busy
  words.set(0, 1);
  EXPECT_SUCCESS(cudaDeviceSynchronize());
  EXPECT_EQ(1u, words[1]);
}

TEST_F(Streams, NotReadyIsNotALastError) {
  BusyStream busy;
  EventHandle event;
  EXPECT_SUCCESS(cudaEventRecord(event, busy));
  (void)cudaGetLastError();
  EXPECT_EQ(cudaErrorNotReady, cudaEventQuery(event));
  EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
  EXPECT_EQ(cudaErrorNotReady, cudaStreamQuery(busy));
  EXPECT_EQ(cudaSuccess, cudaPeekAtLastError());
}

// Memory for the calls below, made before a stream is busy.
struct Memory {
  void* device = nullptr;
  void* other = nullptr;
  void* pinned = nullptr;
  std::vector<char> pageable = std::vector<char>(size_t{4} << 20);
  StreamHandle stream;
  Memory() {
    EXPECT_SUCCESS(cudaMalloc(&device, pageable.size()));
    EXPECT_SUCCESS(cudaMalloc(&other, 4096));
    EXPECT_SUCCESS(cudaHostAlloc(&pinned, pageable.size(), cudaHostAllocPortable));
    EXPECT_SUCCESS(cudaDeviceSynchronize());
  }
  ~Memory() {
    (void)cudaFree(device);
    (void)cudaFree(other);
    (void)cudaFreeHost(pinned);
  }
};

TEST_F(Streams, WhichCallsWaitForABusyDevice) {
  Memory memory;
  const size_t small = 4096, large = memory.pageable.size();
  void* made = nullptr;
  void* made_pinned = nullptr;
  cudaStream_t made_stream = nullptr;
  cudaEvent_t made_event = nullptr;
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) { EXPECT_SUCCESS(cudaMalloc(&made, 64 << 20)); }))
      << "cudaMalloc";
  EXPECT_TRUE(waits_while_busy([&](BusyStream&) { EXPECT_SUCCESS(cudaFree(made)); })) << "cudaFree";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    EXPECT_SUCCESS(cudaHostAlloc(&made_pinned, 1 << 20, cudaHostAllocPortable));
  })) << "cudaHostAlloc";
  EXPECT_TRUE(waits_while_busy([&](BusyStream&) { EXPECT_SUCCESS(cudaFreeHost(made_pinned)); }))
      << "cudaFreeHost";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    EXPECT_SUCCESS(cudaStreamCreateWithFlags(&made_stream, cudaStreamNonBlocking));
  })) << "cudaStreamCreateWithFlags";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) { EXPECT_SUCCESS(cudaStreamDestroy(made_stream)); }))
      << "cudaStreamDestroy";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    EXPECT_SUCCESS(cudaEventCreateWithFlags(&made_event, cudaEventDisableTiming));
  })) << "cudaEventCreateWithFlags";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) { EXPECT_SUCCESS(cudaEventDestroy(made_event)); }))
      << "cudaEventDestroy";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    EXPECT_SUCCESS(
        cudaMemcpyAsync(memory.device, memory.pinned, large, cudaMemcpyHostToDevice, memory.stream));
    EXPECT_SUCCESS(cudaStreamSynchronize(memory.stream));
  })) << "a copy of page-locked memory on an idle stream";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    EXPECT_SUCCESS(
        cudaMemcpyAsync(memory.device, memory.pageable.data(), large, cudaMemcpyHostToDevice, memory.stream));
  })) << "a large copy of pageable memory to the device on an idle stream";
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    EXPECT_SUCCESS(
        cudaMemcpyAsync(memory.pageable.data(), memory.device, small, cudaMemcpyDeviceToHost, memory.stream));
  })) << "a copy to pageable memory on an idle stream";
  EXPECT_TRUE(ends_while_busy([&](BusyStream& busy) {
    EXPECT_SUCCESS(cudaMemcpyAsync(memory.device, memory.pinned, large, cudaMemcpyHostToDevice, busy));
  })) << "a copy of page-locked memory on the busy stream";
  EXPECT_TRUE(ends_while_busy([&](BusyStream& busy) {
    EXPECT_SUCCESS(
        cudaMemcpyAsync(memory.device, memory.pageable.data(), small, cudaMemcpyHostToDevice, busy));
  })) << "a small copy of pageable memory to the device on the busy stream";
  EXPECT_TRUE(waits_while_busy([&](BusyStream& busy) {
    EXPECT_SUCCESS(
        cudaMemcpyAsync(memory.device, memory.pageable.data(), large, cudaMemcpyHostToDevice, busy));
  })) << "a large copy of pageable memory to the device on the busy stream";
  EXPECT_TRUE(waits_while_busy([&](BusyStream& busy) {
    EXPECT_SUCCESS(
        cudaMemcpyAsync(memory.pageable.data(), memory.device, small, cudaMemcpyDeviceToHost, busy));
  })) << "a small copy to pageable memory on the busy stream";
}

// cudaFree() waits until the device is idle, and the other threads of the process wait with it, whatever they
// call. So a program that calls it while the device waits for the host hangs.
TEST_F(Streams, OtherThreadsWaitWhileOneWaitsInCudaFree) {
  Memory memory;
  Words word;
  StreamHandle stream;
  launch_write(word.get(), 1, stream);
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  BusyStream busy;
  auto freeing =
      std::async(std::launch::async, [&] { return cudaFree(std::exchange(memory.other, nullptr)); });
  EXPECT_EQ(std::future_status::timeout, freeing.wait_for(std::chrono::milliseconds(200)));
  auto launching = std::async(std::launch::async, [&] { launch_write(word.get(), 2, stream); });
  EXPECT_EQ(std::future_status::timeout, launching.wait_for(std::chrono::milliseconds(200)));
  busy.open();
  EXPECT_SUCCESS(freeing.get());
  launching.get();
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
}

cudaMemPool_t make_pool(cudaMemLocationType place) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {place, 0};
  cudaMemPool_t pool = nullptr;
  EXPECT_SUCCESS(cudaMemPoolCreate(&pool, &properties));
  return pool;
}

// Memory of a pool on a stream of its own: neither call waits for other streams, and the memory goes back to
// the device.
TEST_F(Streams, MemoryOfAPoolIsMadeAndReleasedWhileTheDeviceIsBusy) {
  const cudaMemPool_t pool = make_pool(cudaMemLocationTypeDevice);
  ASSERT_NE(nullptr, pool);
  StreamHandle stream;
  constexpr size_t kBytes = size_t{1} << 30;
  size_t before = 0, with = 0, after = 0, total = 0;
  EXPECT_SUCCESS(cudaMemGetInfo(&before, &total));
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    void* memory = nullptr;
    EXPECT_SUCCESS(cudaMallocFromPoolAsync(&memory, kBytes, pool, stream));
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(memory) % 4096);
    EXPECT_SUCCESS(cudaMemGetInfo(&with, &total));
    EXPECT_SUCCESS(cudaFreeAsync(memory, stream));
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
    EXPECT_SUCCESS(cudaMemPoolTrimTo(pool, 0));
    EXPECT_SUCCESS(cudaMemGetInfo(&after, &total));
  }));
  EXPECT_LE(with + kBytes, before + (64 << 20));
  EXPECT_GE(after, with + kBytes - (64 << 20));
  void* too_large = nullptr;
  EXPECT_CODE(cudaErrorMemoryAllocation, cudaMallocFromPoolAsync(&too_large, size_t{1} << 46, pool, stream));
  EXPECT_SUCCESS(cudaMemPoolDestroy(pool));
}

// The same for page-locked memory of the host: cudaFreeHost() waits for the device, a pool on the host does
// not.
TEST_F(Streams, PageLockedMemoryOfAPoolIsMadeAndReleasedWhileTheDeviceIsBusy) {
  const cudaMemPool_t pool = make_pool(cudaMemLocationTypeHost);
  ASSERT_NE(nullptr, pool);
  cudaMemAccessDesc access{};
  access.location = {cudaMemLocationTypeDevice, 0};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  EXPECT_SUCCESS(cudaMemPoolSetAccess(pool, &access, 1));
  StreamHandle stream;
  constexpr size_t kBytes = size_t{64} << 20;
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    void* memory = nullptr;
    EXPECT_SUCCESS(cudaMallocFromPoolAsync(&memory, kBytes, pool, stream));
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
    std::memset(memory, 1, kBytes);
    launch_write(static_cast<uint32_t*>(memory), 5, stream);
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
    EXPECT_EQ(5u, *static_cast<uint32_t*>(memory));
    cudaPointerAttributes attributes{};
    EXPECT_SUCCESS(cudaPointerGetAttributes(&attributes, memory));
    EXPECT_EQ(cudaMemoryTypeHost, attributes.type);
    EXPECT_SUCCESS(cudaFreeAsync(memory, stream));
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
    EXPECT_SUCCESS(cudaMemPoolTrimTo(pool, 0));
  }));
  EXPECT_SUCCESS(cudaMemPoolDestroy(pool));
}

// With lazy loading, which is the default, the first launch of a kernel loads it, and that waits until the
// device is idle. cudaFuncGetAttributes() loads it before.
TEST_F(Streams, TheFirstLaunchOfAKernelWaitsForABusyDeviceIfItIsLoadedLazily) {
  const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  const bool eager = loading != nullptr && std::string(loading) == "EAGER";
  Words words(2);
  StreamHandle stream;
  launch_known_while_busy(words.get() + 1, stream);
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    launch_known_while_busy(words.get() + 1, stream);
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  })) << "a kernel that was launched before";
  cudaFuncAttributes attributes{};
  EXPECT_SUCCESS(cudaFuncGetAttributes(&attributes, loaded_while_busy_function()));
  EXPECT_TRUE(ends_while_busy([&](BusyStream&) {
    launch_loaded_while_busy(words.get(), stream);
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  })) << "the first launch of a kernel that is loaded";
  const auto first_launch = [&](BusyStream&) {
    launch_first_while_busy(words.get(), stream);
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  };
  EXPECT_TRUE(eager ? ends_while_busy(first_launch) : waits_while_busy(first_launch))
      << "the first launch of a kernel that is not loaded";
  EXPECT_EQ(1u, words[0]);
}

TEST_F(Streams, DeviceMemoryIsAlignedTo256Bytes) {
  for (size_t bytes : {1u, 3u, 300u, 5000u}) {
    void* memory = nullptr;
    EXPECT_SUCCESS(cudaMalloc(&memory, bytes));
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(memory) % 256);
    EXPECT_SUCCESS(cudaFree(memory));
  }
}

TEST_F(Streams, PageLockedMemoryHasTheSameAddressOnTheDevice) {
  Words word;
  void* address = nullptr;
  EXPECT_SUCCESS(cudaHostGetDevicePointer(&address, word.get(), 0));
  EXPECT_EQ(word.get(), address);
}

TEST_F(Streams, PointersOfPlainMemoryAreUnregisteredAndNoError) {
  int local = 0;
  cudaPointerAttributes attributes{};
  EXPECT_SUCCESS(cudaPointerGetAttributes(&attributes, &local));
  EXPECT_EQ(cudaMemoryTypeUnregistered, attributes.type);
}

// The engine lets a stream wait for a word of the host.
TEST_F(Streams, AStreamCanWaitForAWordOfTheHost) {
  void* pointer = nullptr;
  cudaDriverEntryPointQueryResult found{};
  ASSERT_EQ(cudaSuccess, cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &pointer, 11070,
                                                          cudaEnableDefault, &found));
  ASSERT_EQ(cudaDriverEntryPointSuccess, found);
  const auto wait_value = reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(pointer);
  Words words(2);
  StreamHandle stream, idle;
  ASSERT_EQ(CUDA_SUCCESS,
            wait_value(stream, reinterpret_cast<CUdeviceptr>(words.get()), 1, CU_STREAM_WAIT_VALUE_GEQ));
  launch_write(words.get() + 1, 1, stream);
  EXPECT_CODE(cudaErrorNotReady, cudaStreamQuery(stream));
  EXPECT_SUCCESS(cudaStreamSynchronize(idle));
  EXPECT_EQ(0u, words[1]);
  words.set(0, 1);
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(1u, words[1]);
}

TEST_F(Streams, AnAllocationThatIsTooLargeFailsAndLeavesTheDeviceUsable) {
  void* memory = nullptr;
  EXPECT_CODE(cudaErrorMemoryAllocation, cudaMalloc(&memory, size_t{1} << 46));
  EXPECT_SUCCESS(cudaMalloc(&memory, 1024));
  EXPECT_SUCCESS(cudaFree(memory));
}

TEST_F(Streams, ASuccessfulCallKeepsTheLastErrorOfALaunch) {
  StreamHandle stream;
  launch_too_large(stream);
  EXPECT_SUCCESS(cudaSuccess);  // clears the last error
  launch_too_large(stream);
  EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
  EXPECT_EQ(cudaErrorInvalidValue, cudaGetLastError());
  EXPECT_EQ(cudaSuccess, cudaGetLastError());
}

}  // namespace
}  // namespace mx::facts
