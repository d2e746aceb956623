// Work on a GPU: one thread that polls the device's timer until the time has passed.
#include <cuda_runtime.h>

#include <string>

#include "benchmarks/stream/work.h"
#include "engine/base/error.h"

namespace mx::bench {

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw DeviceError(std::string("[") + what + "] " + cudaGetErrorString(status));
}

__device__ long long timer_ns() {
  long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void wait_kernel(Span* span, long long duration_ns) {
  const long long begin = timer_ns();
  while (timer_ns() - begin < duration_ns) {
  }
  span->begin_ns = begin;
  span->end_ns = timer_ns();
}

class TimerWork final : public Work {
 public:
  explicit TimerWork(size_t count) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, count * sizeof(Span), cudaHostAllocPortable | cudaHostAllocMapped),
          "make_work");
    spans_ = static_cast<Span*>(memory);
  }
  ~TimerWork() override { cudaFreeHost(spans_); }
  void enqueue(Stream& stream, size_t index, int64_t duration_ns) override {
    stream.submit([span = spans_ + index, duration_ns](KernelContext& context) {
      wait_kernel<<<1, 1, 0, static_cast<cudaStream_t>(context.native_stream())>>>(span, duration_ns);
      check(cudaGetLastError(), "wait_kernel");
    });
  }
  Span span(size_t index) const override { return spans_[index]; }

 private:
  Span* spans_ = nullptr;
};

}  // namespace

std::unique_ptr<Work> make_cuda_work(size_t count) { return std::make_unique<TimerWork>(count); }

}  // namespace mx::bench
