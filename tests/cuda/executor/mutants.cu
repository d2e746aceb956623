#include "tests/cuda/executor/mutants.h"

#include "ndarray/cuda/kernel.cuh"

namespace mx::test {
namespace {

using cuda::barrier;
using cuda::shuffle_xor;

constexpr int kThreads = 128, kWarps = kThreads / 32;

struct alignas(16) Four {
  float v[4];
};

template <Mutant kMutant>
__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(const float* x, int64_t n, float* sums, int32_t* total) {
  const float* row = x + blockIdx.x * n + (kMutant == Mutant::misaligned ? 1 : 0);
  const int64_t vectors = n / 4 + (kMutant == Mutant::off_by_one ? 1 : 0);
  if (kMutant == Mutant::early_exit && threadIdx.x >= vectors) return;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < vectors; i += kThreads) {
    cuda::check_aligned(row + 4 * i, sizeof(Four));
    const Four four = reinterpret_cast<const Four*>(row)[i];
    sum += (four.v[0] + four.v[1]) + (four.v[2] + four.v[3]);
  }
  const auto fold = [&] {
    for (int distance = 16; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
  };
  if (kMutant != Mutant::wrong_mask || threadIdx.x % 32 < 16) fold();
  float* const partial = cuda::block_shared<float, 32>();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  if (kMutant == Mutant::other_barrier && threadIdx.x == 0 && blockIdx.x == 0) *total = *total + 1;
  if constexpr (kMutant == Mutant::split_barrier) {
    if (threadIdx.x < 64)
      barrier();
    else
      barrier();
  } else if constexpr (kMutant != Mutant::missing_barrier) {
    barrier();
  }
  if (threadIdx.x != 0) return;
  float result = 0;
  for (int i = 0; i < kWarps + (kMutant == Mutant::unset_shared ? 1 : 0); ++i) result += partial[i];
  sums[blockIdx.x] = result;
  if constexpr (kMutant == Mutant::across_blocks) {
    *total = *total + 1;
  } else if constexpr (kMutant == Mutant::other_barrier) {
    if (blockIdx.x == 1) *total = *total + 1;
  } else {
    cuda::atomic_add(total, 1);
  }
}

template <Mutant kMutant>
void start(const float* x, int64_t rows, int64_t n, float* sums, int32_t* total) {
  cuda::launch(nullptr, static_cast<unsigned>(rows), kThreads, 0, row_sums_kernel<kMutant>, x, n, sums,
               total);
}

}  // namespace

void row_sums(Mutant mutant, const float* x, int64_t rows, int64_t n, float* sums, int32_t* total) {
  switch (mutant) {
    case Mutant::none:
      return start<Mutant::none>(x, rows, n, sums, total);
    case Mutant::missing_barrier:
      return start<Mutant::missing_barrier>(x, rows, n, sums, total);
    case Mutant::early_exit:
      return start<Mutant::early_exit>(x, rows, n, sums, total);
    case Mutant::wrong_mask:
      return start<Mutant::wrong_mask>(x, rows, n, sums, total);
    case Mutant::off_by_one:
      return start<Mutant::off_by_one>(x, rows, n, sums, total);
    case Mutant::misaligned:
      return start<Mutant::misaligned>(x, rows, n, sums, total);
    case Mutant::unset_shared:
      return start<Mutant::unset_shared>(x, rows, n, sums, total);
    case Mutant::split_barrier:
      return start<Mutant::split_barrier>(x, rows, n, sums, total);
    case Mutant::across_blocks:
      return start<Mutant::across_blocks>(x, rows, n, sums, total);
    case Mutant::other_barrier:
      return start<Mutant::other_barrier>(x, rows, n, sums, total);
  }
}

}  // namespace mx::test
