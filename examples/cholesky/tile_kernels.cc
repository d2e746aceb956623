#include "examples/cholesky/tile_kernels.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "examples/cholesky/simd_kernels.h"

namespace cholesky {

namespace {

using detail::kSolveBlock;
using detail::simd_kernels;

// The diagonal block of potrf: too small to be worth vectors.
void potrf_block(int64_t n, double* a, int64_t lda, int64_t first) {
  for (int64_t j = 0; j < n; ++j) {
    double* const column = a + j * lda;
    for (int64_t p = 0; p < j; ++p) {
      const double factor = a[p * lda + j];
      for (int64_t r = j; r < n; ++r) column[r] -= a[p * lda + r] * factor;
    }
    MX_CHECK(column[j] > 0, mx::InvalidArgument, "[potrf] expected a positive definite tile, got pivot ",
             column[j], " at row ", first + j);
    const double root = std::sqrt(column[j]);
    column[j] = root;
    for (int64_t r = j + 1; r < n; ++r) column[r] /= root;
  }
}

}  // namespace

void gemm(const Tile& a, const Tile& b, const Tile& c) {
  simd_kernels().gemm(c.rows, c.cols, a.cols, a.data, a.rows, b.data, b.rows, c.data, c.rows);
}

void syrk(const Tile& a, const Tile& c) {
  // Block columns of the lower triangle: narrow enough to waste little above the diagonal, wide enough to
  // pay for packing.
  constexpr int64_t kBlock = 64;
  for (int64_t j = 0; j < c.cols; j += kBlock) {
    simd_kernels().gemm(c.rows - j, std::min(kBlock, c.cols - j), a.cols, a.data + j, a.rows, a.data + j,
                        a.rows, c.data + j * c.rows + j, c.rows);
  }
}

void trsm(const Tile& l, const Tile& b) {
  for (int64_t j = 0; j < b.cols; j += kSolveBlock) {
    const int64_t width = std::min(kSolveBlock, b.cols - j);
    double* const target = b.data + j * b.rows;
    simd_kernels().gemm(b.rows, width, j, b.data, b.rows, l.data + j, l.rows, target, b.rows);
    simd_kernels().solve(b.rows, width, l.data + j * l.rows + j, l.rows, target, b.rows);
  }
}

void potrf(const Tile& a) {
  const int64_t n = a.rows;
  for (int64_t j = 0; j < n; j += kSolveBlock) {
    const int64_t width = std::min(kSolveBlock, n - j);
    double* const diagonal = a.data + j * n + j;
    simd_kernels().gemm(n - j, width, j, a.data + j, n, a.data + j, n, diagonal, n);
    potrf_block(width, diagonal, n, j);
    simd_kernels().solve(n - j - width, width, diagonal, n, diagonal + width, n);
  }
  for (int64_t c = 1; c < n; ++c) std::fill(a.data + c * n, a.data + c * n + c, 0.0);
}

const char* instruction_set() { return simd_kernels().name; }

}  // namespace cholesky
