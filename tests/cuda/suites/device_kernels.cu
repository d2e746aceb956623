#include "tests/cuda/suites/device_kernels.h"

#include <cuda/atomic>

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

}  // namespace

void launch_fill(uint32_t* p, size_t n, uint32_t value, cudaStream_t stream) {
  fill_kernel<<<1, 256, 0, stream>>>(p, n, value);
}
void launch_add(uint32_t* p, size_t n, uint32_t delta, cudaStream_t stream) {
  add_kernel<<<1, 256, 0, stream>>>(p, n, delta);
}
void launch_check(const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches, cudaStream_t stream) {
  check_kernel<<<1, 256, 0, stream>>>(p, n, expected, mismatches);
}
void launch_gate(const uint32_t* opened, cudaStream_t stream) { gate_kernel<<<1, 1, 0, stream>>>(opened); }

}  // namespace mx::conformance
