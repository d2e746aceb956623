// Work on a GPU: one thread that polls the device's timer until the time has passed.
#include <cuda_runtime.h>

#include <string>

#include "benchmarks/stream/work.h"
#include "benchmarks/support/clock.h"
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

__global__ void empty_kernel() {}

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
  void enqueue_empty(Stream& stream) override {
    stream.submit([](KernelContext& context) {
      empty_kernel<<<1, 1, 0, static_cast<cudaStream_t>(context.native_stream())>>>();
    });
  }
  Span span(size_t index) const override { return spans_[index]; }

 private:
  Span* spans_ = nullptr;
};

}  // namespace

double bare_launch_ns(int gpu, size_t count, bool graph) {
  check(cudaSetDevice(gpu), "bare_launch");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "bare_launch");
  const auto launch_all = [&] {
    for (size_t i = 0; i < count; ++i) empty_kernel<<<1, 1, 0, stream>>>();
    check(cudaGetLastError(), "empty_kernel");
  };
  cudaGraphExec_t exec = nullptr;
  if (graph) {
    cudaGraph_t captured = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "bare_launch");
    launch_all();
    check(cudaStreamEndCapture(stream, &captured), "bare_launch");
    check(cudaGraphInstantiate(&exec, captured, 0), "bare_launch");
    check(cudaGraphDestroy(captured), "bare_launch");
    check(cudaGraphLaunch(exec, stream), "bare_launch");  // the first one uploads the graph
  } else {
    empty_kernel<<<1, 1, 0, stream>>>();  // loads the kernel
  }
  check(cudaStreamSynchronize(stream), "bare_launch");
  const int64_t begin = now_ns();
  if (graph) {
    check(cudaGraphLaunch(exec, stream), "bare_launch");
    check(cudaStreamSynchronize(stream), "bare_launch");
  } else {
    launch_all();
  }
  const double each = static_cast<double>(now_ns() - begin) / static_cast<double>(count);
  check(cudaStreamSynchronize(stream), "bare_launch");
  if (exec != nullptr) check(cudaGraphExecDestroy(exec), "bare_launch");
  check(cudaStreamDestroy(stream), "bare_launch");
  return each;
}

std::unique_ptr<Work> make_cuda_work(size_t count) { return std::make_unique<TimerWork>(count); }

}  // namespace mx::bench
