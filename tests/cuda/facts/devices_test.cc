// Streams and events of several devices. Source: CUDA Programming Guide, "Stream and Event Behavior" of
// "Multi-Device System"; CUDA Runtime API, "Peer Device Memory Access". The tests need two GPUs.
#include <cuda.h>

#include "tests/cuda/facts/facts.h"

namespace mx::facts {
namespace {

class TwoDevices : public Facts {
 protected:
  void SetUp() override {
    Facts::SetUp();
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) GTEST_SKIP() << "needs two GPUs";
  }
  void TearDown() override {
    (void)cudaSetDevice(0);
    Facts::TearDown();
  }
};

TEST_F(TwoDevices, AKernelCannotBeLaunchedOnAStreamOfADeviceThatIsNotCurrent) {
  StreamHandle stream;
  Words word;
  EXPECT_SUCCESS(cudaSetDevice(1));
  launch_write(word.get(), 1, stream);
  EXPECT_CODE(cudaErrorInvalidResourceHandle, cudaGetLastError());
  EXPECT_SUCCESS(cudaSetDevice(0));
  launch_write(word.get(), 2, stream);
  EXPECT_SUCCESS(cudaGetLastError());
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(2u, word[0]);
}

TEST_F(TwoDevices, ACopyMayBeMadeOnAStreamOfADeviceThatIsNotCurrent) {
  StreamHandle stream;
  Words words(2);
  words.set(0, 3);
  EXPECT_SUCCESS(cudaSetDevice(1));
  EXPECT_SUCCESS(cudaMemcpyAsync(words.get() + 1, words.get(), 4, cudaMemcpyHostToHost, stream));
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(3u, words[1]);
}

TEST_F(TwoDevices, AnEventIsRecordedOnStreamsOfItsOwnDeviceOnly) {
  EventHandle event;
  EXPECT_SUCCESS(cudaSetDevice(1));
  StreamHandle other;
  EXPECT_CODE(cudaErrorInvalidResourceHandle, cudaEventRecord(event, other));
}

TEST_F(TwoDevices, AStreamCanWaitForAnEventOfAnotherDevice) {
  EventHandle event;
  Words word;
  BusyStream busy;
  EXPECT_SUCCESS(cudaEventRecord(event, busy));
  EXPECT_SUCCESS(cudaSetDevice(1));
  StreamHandle waiting;
  EXPECT_SUCCESS(cudaStreamWaitEvent(waiting, event, 0));
  launch_write(word.get(), 1, waiting);
  EXPECT_CODE(cudaErrorNotReady, cudaStreamQuery(waiting));
  EXPECT_CODE(cudaErrorNotReady, cudaEventQuery(event));  // although its device is not current
  busy.open();
  EXPECT_SUCCESS(cudaStreamSynchronize(waiting));
  EXPECT_EQ(1u, word[0]);
}

template <class F>
F entry_point(const char* name, unsigned version) {
  void* pointer = nullptr;
  cudaDriverEntryPointQueryResult found{};
  EXPECT_SUCCESS(cudaGetDriverEntryPointByVersion(name, &pointer, version, cudaEnableDefault, &found));
  EXPECT_EQ(cudaDriverEntryPointSuccess, found) << name;
  return reinterpret_cast<F>(pointer);
}

// Source: CUDA Driver API, "Context Management"; CUDA Runtime API, "Interactions with the CUDA Driver API".
TEST_F(TwoDevices, APushedPrimaryContextMakesItsDeviceCurrentUntilItIsPopped) {
  const auto retain = entry_point<CUresult (*)(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain", 7000);
  const auto push = entry_point<CUresult (*)(CUcontext)>("cuCtxPushCurrent", 4000);
  const auto pop = entry_point<CUresult (*)(CUcontext*)>("cuCtxPopCurrent", 4000);
  ASSERT_TRUE(retain != nullptr && push != nullptr && pop != nullptr);
  CUcontext context = nullptr, popped = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, retain(&context, 1));
  ASSERT_EQ(CUDA_SUCCESS, push(context));
  int device = -1;
  EXPECT_SUCCESS(cudaGetDevice(&device));
  EXPECT_EQ(1, device);
  cudaStream_t stream = nullptr;
  EXPECT_SUCCESS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Words word;
  launch_write(word.get(), 6, stream);  // its device is current
  EXPECT_SUCCESS(cudaGetLastError());
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(6u, word[0]);
  EXPECT_SUCCESS(cudaStreamDestroy(stream));
  ASSERT_EQ(CUDA_SUCCESS, pop(&popped));
  EXPECT_EQ(context, popped);
  EXPECT_SUCCESS(cudaGetDevice(&device));
  EXPECT_EQ(0, device);
}

TEST_F(TwoDevices, PeerAccessCannotBeEnabledTwice) {
  int possible = 0;
  EXPECT_SUCCESS(cudaDeviceCanAccessPeer(&possible, 0, 1));
  if (possible == 0) GTEST_SKIP() << "these devices have no peer access";
  EXPECT_SUCCESS(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CODE(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
}

}  // namespace
}  // namespace mx::facts
