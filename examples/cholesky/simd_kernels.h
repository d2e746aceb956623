// The two inner kernels that every tile kernel is made of, once per instruction set.
#pragma once

#include <cstdint>

namespace cholesky::detail {

/// Columns that solve() processes at once; the tile kernels split their triangles into blocks of this size.
inline constexpr int64_t kSolveBlock = 32;

/// Column-major throughout; ld is the distance of two columns.
struct SimdKernels {
  const char* name;
  /// c[m, n] -= a[m, k] * b[n, k]^T.
  void (*gemm)(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb,
               double* c, int64_t ldc);
  /// b[m, n] = b * l^-T with l[n, n] lower triangular, n <= kSolveBlock.
  void (*solve)(int64_t m, int64_t n, const double* l, int64_t ldl, double* b, int64_t ldb);
};

/// The best set for this processor.
const SimdKernels& simd_kernels();

/// Every set that this processor can run, for tests; the portable one is always there and last.
int num_simd_kernels();
const SimdKernels& simd_kernels(int index);

}  // namespace cholesky::detail
