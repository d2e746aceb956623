// The tests' operations on the stand-in for CUDA; tests/cuda/suites/stream_kernels.cu on GPUs.
#include "tests/cuda/suites/stream_kernels.h"

#include <atomic>
#include <chrono>

#include "tests/cuda/fake/fake_cuda.h"

namespace mx::test {

void launch_fill(double* out, size_t size, double value, cudaStream_t stream) {
  fake_cuda::launch(nullptr, 1, 256, 0, stream, [=] {
    fake_cuda::check_access(out, size * sizeof *out, sizeof *out);
    for (size_t i = 0; i < size; ++i) out[i] = value;
    return true;
  });
}

void launch_add(const double* a, const double* b, double* out, size_t size, cudaStream_t stream) {
  fake_cuda::launch(nullptr, 1, 256, 0, stream, [=] {
    for (const double* p : {a, b, static_cast<const double*>(out)})
      fake_cuda::check_access(p, size * sizeof *p, sizeof *p);
    for (size_t i = 0; i < size; ++i) out[i] = a[i] + b[i];
    return true;
  });
}

void launch_matmul(const double* a, const double* b, double* out, size_t n, cudaStream_t stream) {
  fake_cuda::launch(nullptr, 1, 256, 0, stream, [=] {
    for (const double* p : {a, b, static_cast<const double*>(out)})
      fake_cuda::check_access(p, n * n * sizeof *p, sizeof *p);
    for (size_t i = 0; i < n * n; ++i) {
      double sum = 0;
      for (size_t k = 0; k < n; ++k) sum += a[i / n * n + k] * b[k * n + i % n];
      out[i] = sum;
    }
    return true;
  });
}

// Arrives once in each launch, and is done when all others have arrived.
void launch_attend(MeetingState* state, int attendee, cudaStream_t stream) {
  using Clock = std::chrono::steady_clock;
  fake_cuda::launch(nullptr, 1, 1, 0, stream, [=, arrived = false, limit = Clock::time_point()]() mutable {
    fake_cuda::check_access(state, sizeof *state, alignof(MeetingState));
    const auto load = [](int& value) { return std::atomic_ref(value).load(); };
    if (!arrived) {
      arrived = true;
      limit = Clock::now() + std::chrono::seconds(10);
      std::atomic_ref(state->arrived[attendee]).fetch_add(1);
    }
    int all = load(state->host_arrived);
    for (int& other : state->arrived) all += load(other);
    if (all >= state->expected) return true;
    if (Clock::now() < limit) return false;
    std::atomic_ref(state->gave_up).store(1);
    return true;
  });
}

}  // namespace mx::test
