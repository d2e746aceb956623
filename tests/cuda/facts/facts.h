// Facts about CUDA that this project relies on. Each test states one rule of NVIDIA's documentation (or what
// a GPU was seen to do, where the documentation is silent) and checks it. A stand-in for CUDA must pass the
// same tests.
//
// The tests skip themselves on machines without a GPU. Those that lose the device run in a process of their
// own.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "tests/cuda/facts/kernels.h"

/// Expects that a call returns this code, and forgets the thread's last error.
#define EXPECT_CODE(expected, call)                                                       \
  do {                                                                                    \
    const cudaError_t fact_code = (call);                                                 \
    (void)cudaGetLastError();                                                             \
    EXPECT_STREQ(cudaGetErrorName(expected), cudaGetErrorName(fact_code)) << "of " #call; \
  } while (false)
#define EXPECT_SUCCESS(call) EXPECT_CODE(cudaSuccess, call)

namespace mx::facts {

inline bool has_gpu() {
  int count = 0;
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  (void)cudaGetLastError();
  return found;
}

class StreamHandle {
 public:
  explicit StreamHandle(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_SUCCESS(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~StreamHandle() { (void)cudaStreamDestroy(stream_); }
  StreamHandle(const StreamHandle&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class EventHandle {
 public:
  EventHandle() { EXPECT_SUCCESS(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~EventHandle() { (void)cudaEventDestroy(event_); }
  EventHandle(const EventHandle&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Words of page-locked memory that the host and the device see, all 0 at first.
class Words {
 public:
  explicit Words(size_t count = 1) {
    EXPECT_SUCCESS(cudaHostAlloc(reinterpret_cast<void**>(&words_), count * sizeof(uint32_t),
                                 cudaHostAllocMapped | cudaHostAllocPortable));
    for (size_t i = 0; i < count; ++i) words_[i] = 0;
  }
  ~Words() { (void)cudaFreeHost(words_); }
  Words(const Words&) = delete;
  uint32_t* get() const { return words_; }
  uint32_t operator[](size_t i) const { return std::atomic_ref(words_[i]).load(); }
  void set(size_t i, uint32_t value) { std::atomic_ref(words_[i]).store(value); }

 private:
  uint32_t* words_ = nullptr;
};

/// Keeps a stream busy until open() or the end of the scope.
class BusyStream {
 public:
  BusyStream() { launch_gate(opened_.get(), stream_); }
  ~BusyStream() {
    open();
    (void)cudaStreamSynchronize(stream_);
  }
  void open() { opened_.set(0, 1); }
  operator cudaStream_t() const { return stream_; }

 private:
  Words opened_;
  StreamHandle stream_;
};

/// Runs a call while a stream of the device is busy. Returns whether it ends within `patience`; then opens
/// the gate.
inline bool ends_within(std::chrono::milliseconds patience, const std::function<void(BusyStream&)>& call) {
  BusyStream busy;
  auto running = std::async(std::launch::async, [&] { call(busy); });
  const bool ended = running.wait_for(patience) == std::future_status::ready;
  busy.open();
  running.get();
  return ended;
}
/// Returns whether a call ends while a stream of the device is busy. Patient, because other programs may need
/// the processors.
inline bool ends_while_busy(const std::function<void(BusyStream&)>& call) {
  return ends_within(std::chrono::seconds(10), call);
}
/// Returns whether a call waits for the busy stream.
inline bool waits_while_busy(const std::function<void(BusyStream&)>& call) {
  return !ends_within(std::chrono::milliseconds(500), call);
}

class Facts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU here";
    ASSERT_EQ(cudaSuccess, cudaSetDevice(0));
    ASSERT_EQ(cudaSuccess, cudaFree(nullptr));  // makes the context
    load_write();
  }
  /// Loads the kernel of launch_write() on the current device. With lazy loading, its first launch would wait
  /// until the device is idle, and many facts keep it busy.
  static void load_write() {
    cudaFuncAttributes attributes{};
    ASSERT_EQ(cudaSuccess, cudaFuncGetAttributes(&attributes, write_function()));
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    (void)cudaGetLastError();
  }
};

}  // namespace mx::facts
