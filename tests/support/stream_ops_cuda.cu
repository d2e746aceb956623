// The tests' operations as CUDA kernels. Sizes are small, so the kernels are simple.
#include <cuda_runtime.h>

#include <atomic>
#include <string>

#include "engine/base/error.h"
#include "tests/support/stream_ops.h"

namespace mx::test {

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string("[") + what + "] " + cudaGetErrorString(status));
}

__global__ void fill_kernel(double* out, size_t size, double value) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) out[i] = value;
}

__global__ void add_kernel(const double* a, const double* b, double* out, size_t size) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) out[i] = a[i] + b[i];
}

__global__ void matmul_kernel(const double* a, const double* b, double* out, size_t n) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n * n; i += step) {
    double sum = 0;
    // Rounds like the loop of the host: no fused multiply-add.
    for (size_t k = 0; k < n; ++k) sum = __dadd_rn(sum, __dmul_rn(a[i / n * n + k], b[k * n + i % n]));
    out[i] = sum;
  }
}

constexpr int kMostAttendees = 256;

// Lives in page-locked host memory that every device sees. Each attendee has a counter of its own, because
// not every machine can change host memory atomically from a device.
struct MeetingState {
  int expected;
  int attendees;  // host only: counters that are in use
  int gave_up;
  int host_arrived;
  int arrived[kMostAttendees];
};

// Runs in one thread. The time limit, in nanoseconds of the device's timer, keeps a failing test from
// hanging. A graph may run the kernel again, but never twice at a time.
__global__ void attend_kernel(MeetingState* state, int attendee) {
  constexpr unsigned long long kLimit = 10'000'000'000ull;
  unsigned long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  volatile MeetingState* seen = state;
  seen->arrived[attendee] = seen->arrived[attendee] + 1;
  __threadfence_system();
  const auto all_arrived = [seen] {
    int arrived = seen->host_arrived;
    for (int i = 0; i < kMostAttendees && arrived < seen->expected; ++i) arrived += seen->arrived[i];
    return arrived >= seen->expected;
  };
  while (!all_arrived()) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - begin > kLimit) {
      seen->gave_up = 1;
      return;
    }
  }
}

cudaStream_t native(KernelContext& context) { return static_cast<cudaStream_t>(context.native_stream()); }

unsigned blocks_for(size_t size) {
  return static_cast<unsigned>((size + 255) / 256 < 64 ? (size + 255) / 256 : 64);
}

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
      attend_kernel<<<1, 1, 0, native(context)>>>(state, attendee);
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
      fill_kernel<<<blocks_for(size), 256, 0, native(context)>>>(context.ptr(out), size, value);
      check(cudaGetLastError(), "fill");
    });
  }
  void add(Stream& stream, const double* a, const double* b, double* out, size_t size) override {
    stream.submit([=](KernelContext& context) {
      add_kernel<<<blocks_for(size), 256, 0, native(context)>>>(context.ptr(a), context.ptr(b),
                                                                context.ptr(out), size);
      check(cudaGetLastError(), "add");
    });
  }
  void matmul(Stream& stream, const double* a, const double* b, double* out, size_t n) override {
    stream.submit([=](KernelContext& context) {
      matmul_kernel<<<blocks_for(n * n), 256, 0, native(context)>>>(context.ptr(a), context.ptr(b),
                                                                    context.ptr(out), n);
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
