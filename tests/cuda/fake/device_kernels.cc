// The kernels of the device suite on the stand-in for CUDA; tests/cuda/suites/device_kernels.cu on GPUs.
#include <atomic>

#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/suites/device_kernels.h"

namespace mx::conformance {

void launch_fill(uint32_t* p, size_t n, uint32_t value, cudaStream_t stream) {
  fake_cuda::launch(nullptr, 1, 256, 0, stream, [=] {
    fake_cuda::check_access(p, n * sizeof *p, sizeof *p);
    for (size_t i = 0; i < n; ++i) p[i] = value;
    return true;
  });
}

void launch_add(uint32_t* p, size_t n, uint32_t delta, cudaStream_t stream) {
  fake_cuda::launch(nullptr, 1, 256, 0, stream, [=] {
    fake_cuda::check_access(p, n * sizeof *p, sizeof *p);
    for (size_t i = 0; i < n; ++i) p[i] += delta;
    return true;
  });
}

void launch_check(const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches, cudaStream_t stream) {
  fake_cuda::launch(nullptr, 1, 256, 0, stream, [=] {
    fake_cuda::check_access(p, n * sizeof *p, sizeof *p);
    fake_cuda::check_access(mismatches, sizeof *mismatches, sizeof *mismatches);
    for (size_t i = 0; i < n; ++i)
      if (p[i] != expected) std::atomic_ref(*mismatches).fetch_add(1);
    return true;
  });
}

void launch_gate(const uint32_t* opened, cudaStream_t stream) {
  fake_cuda::launch(nullptr, 1, 1, 0, stream, [opened] {
    fake_cuda::check_access(opened, sizeof *opened, sizeof *opened);
    return std::atomic_ref(*const_cast<uint32_t*>(opened)).load(std::memory_order_acquire) != 0;
  });
}

}  // namespace mx::conformance
