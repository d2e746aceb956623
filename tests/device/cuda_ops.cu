#include <cuda/atomic>

#include "engine/device/cuda/cuda_error.h"
#include "tests/device/cuda_ops.h"

namespace mx::conformance {

namespace {

__global__ void fill_kernel(uint32_t* p, size_t n, uint32_t value) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) p[i] = value;
}

__global__ void add_kernel(uint32_t* p, size_t n, uint32_t delta) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) p[i] += delta;
}

__global__ void check_kernel(const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
    if (p[i] != expected) atomicAdd(mismatches, 1u);
  }
}

// Spins until the host opens the gate. Gives up after many seconds, so that a broken test cannot hang the
// GPU.
__global__ void gate_kernel(const uint32_t* opened) {
  const cuda::atomic_ref<const uint32_t, cuda::thread_scope_system> flag(*opened);
  for (uint64_t looks = 0; looks < 50'000'000 && flag.load(cuda::memory_order_acquire) == 0; ++looks) {
    __nanosleep(500);
  }
}

cudaStream_t native(KernelContext& context) { return static_cast<cudaStream_t>(context.native_stream()); }

class CudaGate final : public Gate {
 public:
  explicit CudaGate(Stream& stream) {
    const CudaGuard guard(stream.device().context().id);
    void* memory = nullptr;
    MX_CUDA(cudaHostAlloc(&memory, sizeof(uint32_t), cudaHostAllocMapped | cudaHostAllocPortable));
    opened_ = static_cast<uint32_t*>(memory);
    *opened_ = 0;
    stream.submit(
        [flag = opened_](KernelContext& context) { gate_kernel<<<1, 1, 0, native(context)>>>(flag); });
    passed_ = stream.mark();
  }
  // Freeing the word waits for the device, which may be blocked by another gate. So the word is freed only
  // when no kernel uses it.
  ~CudaGate() override {
    open();
    if (passed_->query() != EventStatus::pending) (void)cudaFreeHost(opened_);
  }
  void open() override {
    cuda::atomic_ref<uint32_t, cuda::thread_scope_system>(*opened_).store(1, cuda::memory_order_release);
  }

 private:
  uint32_t* opened_ = nullptr;
  std::shared_ptr<EventPoint> passed_;
};

class CudaOps final : public DeviceOps {
 public:
  bool tasks_run_on_own_threads() const override { return false; }

  void fill(Stream& stream, uint32_t* p, size_t n, uint32_t value) override {
    stream.submit([=](KernelContext& context) { fill_kernel<<<1, 256, 0, native(context)>>>(p, n, value); });
  }
  void add(Stream& stream, uint32_t* p, size_t n, uint32_t delta) override {
    stream.submit([=](KernelContext& context) { add_kernel<<<1, 256, 0, native(context)>>>(p, n, delta); });
  }
  void check(Stream& stream, const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches) override {
    stream.submit([=](KernelContext& context) {
      check_kernel<<<1, 256, 0, native(context)>>>(p, n, expected, mismatches);
    });
  }
  std::unique_ptr<Gate> hold(Stream& stream) override { return std::make_unique<CudaGate>(stream); }
};

}  // namespace

DeviceOps& cuda_ops() {
  static CudaOps ops;
  return ops;
}

}  // namespace mx::conformance
