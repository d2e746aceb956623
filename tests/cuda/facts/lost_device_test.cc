// Errors after which a process cannot use the device any more. Source: CUDA Runtime API, descriptions of the
// error codes 700, 710, 716, 719. Each test runs in a process of its own.
#include <cstdio>
#include <cstdlib>

#include "tests/cuda/facts/facts.h"

namespace mx::facts {
namespace {

// Runs a faulty kernel and then checks that every call fails alike. Exits with 0 if so.
[[noreturn]] void fail_and_look(const std::function<void(cudaStream_t)>& launch, cudaError_t expected) {
  int wrong = 0;
  const auto expect = [&](const char* call, cudaError_t wanted, cudaError_t code) {
    if (code == wanted) return;
    std::fprintf(stderr, "%s: expected %s, got %s\n", call, cudaGetErrorName(wanted), cudaGetErrorName(code));
    ++wrong;
  };
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr, before = nullptr;
  void* memory = nullptr;
  expect("cudaStreamCreate", cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  expect("cudaStreamCreate", cudaSuccess, cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  expect("cudaEventCreate", cudaSuccess, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  expect("cudaEventCreate", cudaSuccess, cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
  expect("cudaMalloc", cudaSuccess, cudaMalloc(&memory, 1024));
  expect("cudaEventRecord", cudaSuccess, cudaEventRecord(before, other));
  expect("cudaStreamSynchronize", cudaSuccess, cudaStreamSynchronize(other));
  launch(stream);
  expect("the launch itself", cudaSuccess, cudaGetLastError());
  expect("cudaEventRecord after the launch", cudaSuccess, cudaEventRecord(event, stream));
  expect("cudaStreamSynchronize", expected, cudaStreamSynchronize(stream));
  for (int round = 0; round < 2; ++round) {  // cudaGetLastError() does not help
    expect("cudaEventQuery of the event behind the fault", expected, cudaEventQuery(event));
    expect("cudaEventQuery of an event that was complete", expected, cudaEventQuery(before));
    expect("cudaStreamQuery of another stream", expected, cudaStreamQuery(other));
    void* more = nullptr;
    expect("cudaMalloc", expected, cudaMalloc(&more, 1024));
    expect("cudaMemcpyAsync", expected, cudaMemcpyAsync(memory, memory, 4, cudaMemcpyDeviceToDevice, other));
    expect("cudaEventRecord", expected, cudaEventRecord(event, other));
    launch_write(static_cast<uint32_t*>(memory), 1, other);
    expect("a kernel on another stream", expected, cudaGetLastError());
    int device = -1;
    expect("cudaGetDevice", cudaSuccess, cudaGetDevice(&device));
    (void)cudaGetLastError();
  }
  expect("cudaFree", expected, cudaFree(memory));
  std::exit(wrong == 0 ? 0 : 1);
}

class LostDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    // Asking CUDA here would make a context that a forked child cannot use. The style "threadsafe" starts the
    // program anew.
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (!has_gpu()) GTEST_SKIP() << "no GPU here";
  }
};

TEST_F(LostDevice, IllegalAddress) {
  EXPECT_EXIT(fail_and_look(launch_write_to_null, cudaErrorIllegalAddress), ::testing::ExitedWithCode(0), "");
}

TEST_F(LostDevice, Trap) {
  EXPECT_EXIT(fail_and_look(launch_trap, cudaErrorLaunchFailure), ::testing::ExitedWithCode(0), "");
}

TEST_F(LostDevice, FailedAssertion) {
  EXPECT_EXIT(fail_and_look(launch_failed_assertion, cudaErrorAssert), ::testing::ExitedWithCode(0), "");
}

TEST_F(LostDevice, MisalignedAddress) {
  EXPECT_EXIT(fail_and_look(
                  [](cudaStream_t stream) {
                    void* memory = nullptr;
                    (void)cudaMalloc(&memory, 1024);
                    launch_misaligned_write(static_cast<uint32_t*>(memory), stream);
                  },
                  cudaErrorMisalignedAddress),
              ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mx::facts
