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

// Lives in page-locked host memory that every device sees. The host and the devices have separate counters,
// because an atomic operation of one need not be atomic for the other.
struct MeetingState {
  int expected;
  int arrived;
  int host_arrived;
  int gave_up;
};

// Runs in one thread. The time limit, in nanoseconds of the device's timer, keeps a failing test from
// hanging.
__global__ void attend_kernel(MeetingState* state) {
  constexpr unsigned long long kLimit = 10'000'000'000ull;
  unsigned long long begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  atomicAdd_system(&state->arrived, 1);
  volatile MeetingState* seen = state;
  while (seen->arrived + seen->host_arrived < seen->expected) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - begin > kLimit) {
      atomicExch_system(&state->gave_up, 1);
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
    state_ = new (memory) MeetingState{expected, 0, 0, 0};
  }
  ~CudaMeeting() override { cudaFreeHost(state_); }

  void attend(Stream& stream) override {
    stream.submit([state = state_](KernelContext& context) {
      attend_kernel<<<1, 1, 0, native(context)>>>(state);
      check(cudaGetLastError(), "attend");
    });
  }
  void host_attends() override { std::atomic_ref<int>(state_->host_arrived).fetch_add(1); }
  int arrived() const override { return load(state_->arrived) + load(state_->host_arrived); }
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
