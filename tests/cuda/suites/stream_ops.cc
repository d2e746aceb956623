// The tests' operations on GPUs.
#include <cuda_runtime_api.h>

#include <atomic>
#include <new>
#include <string>

#include "engine/base/error.h"
#include "tests/cuda/suites/stream_kernels.h"
#include "tests/support/stream_ops.h"

namespace mx::test {

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string("[") + what + "] " + cudaGetErrorString(status));
}

cudaStream_t native(KernelContext& context) { return static_cast<cudaStream_t>(context.native_stream()); }

class CudaMeeting final : public Meeting {
 public:
  explicit CudaMeeting(int expected) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, sizeof(MeetingState), cudaHostAllocPortable | cudaHostAllocMapped),
          "new_meeting");
    state_ = new (memory) MeetingState{};
    state_->expected = expected;
  }
  ~CudaMeeting() override { cudaFreeHost(state_); }

  void attend(Stream& stream) override {
    const int attendee = std::atomic_ref<int>(state_->attendees).fetch_add(1);
    if (attendee >= kMostAttendees) throw InvalidState("[attend] too many attendees");
    stream.submit([state = state_, attendee](KernelContext& context) {
      launch_attend(state, attendee, native(context));
      check(cudaGetLastError(), "attend");
    });
  }
  void host_attends() override { std::atomic_ref<int>(state_->host_arrived).fetch_add(1); }
  int arrived() const override {
    int sum = load(state_->host_arrived);
    for (int& arrived : state_->arrived) sum += load(arrived);
    return sum;
  }
  bool all_met() const override { return load(state_->gave_up) == 0; }

 private:
  static int load(int& value) { return std::atomic_ref<int>(value).load(); }

  MeetingState* state_;
};

class CudaStreamOps final : public StreamOps {
 public:
  void fill(Stream& stream, double* out, size_t size, double value) override {
    stream.submit([=](KernelContext& context) {
      launch_fill(context.ptr(out), size, value, native(context));
      check(cudaGetLastError(), "fill");
    });
  }
  void add(Stream& stream, const double* a, const double* b, double* out, size_t size) override {
    stream.submit([=](KernelContext& context) {
      launch_add(context.ptr(a), context.ptr(b), context.ptr(out), size, native(context));
      check(cudaGetLastError(), "add");
    });
  }
  void matmul(Stream& stream, const double* a, const double* b, double* out, size_t n) override {
    stream.submit([=](KernelContext& context) {
      launch_matmul(context.ptr(a), context.ptr(b), context.ptr(out), n, native(context));
      check(cudaGetLastError(), "matmul");
    });
  }
  std::unique_ptr<Meeting> new_meeting(int expected) override {
    return std::make_unique<CudaMeeting>(expected);
  }
};

}  // namespace

StreamOps& cuda_stream_ops() {
  static CudaStreamOps ops;
  return ops;
}

}  // namespace mx::test
