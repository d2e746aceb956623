// Sizes are small, so the kernels are simple.
#include "tests/cuda/suites/stream_kernels.h"

namespace mx::test {

namespace {

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

unsigned blocks_for(size_t size) {
  return static_cast<unsigned>((size + 255) / 256 < 64 ? (size + 255) / 256 : 64);
}

}  // namespace

void launch_fill(double* out, size_t size, double value, cudaStream_t stream) {
  fill_kernel<<<blocks_for(size), 256, 0, stream>>>(out, size, value);
}
void launch_add(const double* a, const double* b, double* out, size_t size, cudaStream_t stream) {
  add_kernel<<<blocks_for(size), 256, 0, stream>>>(a, b, out, size);
}
void launch_matmul(const double* a, const double* b, double* out, size_t n, cudaStream_t stream) {
  matmul_kernel<<<blocks_for(n * n), 256, 0, stream>>>(a, b, out, n);
}
void launch_attend(MeetingState* state, int attendee, cudaStream_t stream) {
  attend_kernel<<<1, 1, 0, stream>>>(state, attendee);
}

}  // namespace mx::test
