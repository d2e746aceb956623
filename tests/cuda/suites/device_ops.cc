#include "tests/device/cuda_ops.h"

#include <atomic>

#include "engine/device/cuda/cuda_error.h"
#include "tests/cuda/suites/device_kernels.h"

namespace mx::conformance {

namespace {

cudaStream_t native(KernelContext& context) { return static_cast<cudaStream_t>(context.native_stream()); }

class CudaGate final : public Gate {
 public:
  explicit CudaGate(Stream& stream) {
    const CudaGuard guard(stream.device().context().id);
    void* memory = nullptr;
    MX_CUDA(cudaHostAlloc(&memory, sizeof(uint32_t), cudaHostAllocMapped | cudaHostAllocPortable));
    opened_ = static_cast<uint32_t*>(memory);
    *opened_ = 0;
    stream.submit([flag = opened_](KernelContext& context) { launch_gate(flag, native(context)); });
    passed_ = stream.mark();
  }
  // Freeing the word waits for the device, which may be blocked by another gate. So the word is freed only
  // when no kernel uses it.
  ~CudaGate() override {
    open();
    if (passed_->query() != EventStatus::pending) (void)cudaFreeHost(opened_);
  }
  void open() override { std::atomic_ref(*opened_).store(1, std::memory_order_release); }

 private:
  uint32_t* opened_ = nullptr;
  std::shared_ptr<EventPoint> passed_;
};

class CudaOps final : public DeviceOps {
 public:
  bool tasks_run_on_own_threads() const override { return false; }

  void fill(Stream& stream, uint32_t* p, size_t n, uint32_t value) override {
    stream.submit([=](KernelContext& context) { launch_fill(p, n, value, native(context)); });
  }
  void add(Stream& stream, uint32_t* p, size_t n, uint32_t delta) override {
    stream.submit([=](KernelContext& context) { launch_add(p, n, delta, native(context)); });
  }
  void check(Stream& stream, const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches) override {
    stream.submit([=](KernelContext& context) { launch_check(p, n, expected, mismatches, native(context)); });
  }
  std::unique_ptr<Gate> hold(Stream& stream) override { return std::make_unique<CudaGate>(stream); }
};

}  // namespace

DeviceOps& cuda_ops() {
  static CudaOps ops;
  return ops;
}

}  // namespace mx::conformance
