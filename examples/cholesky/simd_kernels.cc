#include "examples/cholesky/simd_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace cholesky::detail {

namespace {

// The code is written once on the compiler's vector types and compiled once per instruction set: a template
// that is inlined whole into a function with a target attribute takes that function's instruction set. It
// needs no run-time linker support, unlike target_clones, and so works under the sanitizers and with clang.
#define MX_EXAMPLE_INLINE [[gnu::always_inline]] inline

template <int kBytes>
struct VectorOf {
  typedef double type __attribute__((vector_size(kBytes)));
  /// The same for any address: one unaligned load or store in every instruction set used here. memcpy is not
  /// used, because GCC splits it into two halves, and the next load then has to wait for both.
  struct [[gnu::packed, gnu::may_alias]] Unaligned {
    type value;
  };
};

// Rows of c per vector group, columns of c per pass, and the depth that keeps both packed panels in cache.
template <int kBytes, int kVectors, int kColumns>
struct Blocking {
  using Vector = typename VectorOf<kBytes>::type;
  using Unaligned = typename VectorOf<kBytes>::Unaligned;
  static constexpr int kWidth = kBytes / 8;
  static constexpr int kVectorsPerColumn = kVectors;
  static constexpr int kRows = kVectors * kWidth;
  static constexpr int kCols = kColumns;
};
constexpr int64_t kDepth = 256;

template <class B>
MX_EXAMPLE_INLINE typename B::Unaligned* at(double* p) {
  return reinterpret_cast<typename B::Unaligned*>(p);
}
template <class B>
MX_EXAMPLE_INLINE const typename B::Unaligned* at(const double* p) {
  return reinterpret_cast<const typename B::Unaligned*>(p);
}

/// Scratch memory of the calling thread, 64-byte aligned. It grows when needed and stays allocated.
class Scratch {
 public:
  double* get(size_t doubles) {
    if (doubles > size_) {
      memory_.reset(new (std::align_val_t(64)) double[doubles]);
      size_ = doubles;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(double* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  std::unique_ptr<double, Free> memory_;
  size_t size_ = 0;
};

thread_local Scratch packed_a;
thread_local Scratch packed_b;

// Copies [rows, depth] into panels of kPanel rows, each stored depth by depth and padded with zeros: the
// inner loop then reads memory in order and needs no edge cases.
template <int kPanel>
MX_EXAMPLE_INLINE void pack(int64_t rows, int64_t depth, const double* source, int64_t ld, double* target) {
  for (int64_t r0 = 0; r0 < rows; r0 += kPanel) {
    const int64_t height = std::min<int64_t>(kPanel, rows - r0);
    for (int64_t p = 0; p < depth; ++p, target += kPanel) {
      const double* column = source + p * ld + r0;
      if (height == kPanel) {
        for (int r = 0; r < kPanel; ++r) target[r] = column[r];
      } else {
        for (int r = 0; r < kPanel; ++r) target[r] = r < height ? column[r] : 0.0;
      }
    }
  }
}

// c[rows, cols] -= a * b^T for one packed panel of each; the accumulators stay in registers throughout.
template <class B>
MX_EXAMPLE_INLINE void micro_kernel(int64_t depth, const double* a, const double* b, double* c, int64_t ldc,
                                    int64_t rows, int64_t cols) {
  using Vector = typename B::Vector;
  constexpr int kV = B::kVectorsPerColumn;
  Vector sum[B::kCols][kV] = {};
  for (int64_t p = 0; p < depth; ++p, a += B::kRows, b += B::kCols) {
    Vector column[kV];
#pragma GCC unroll 16
    for (int v = 0; v < kV; ++v) column[v] = at<B>(a + v * B::kWidth)->value;
#pragma GCC unroll 16
    for (int j = 0; j < B::kCols; ++j) {
      const double factor = b[j];
#pragma GCC unroll 16
      for (int v = 0; v < kV; ++v) sum[j][v] += column[v] * factor;
    }
  }
  if (rows == B::kRows && cols == B::kCols) {
#pragma GCC unroll 16
    for (int j = 0; j < B::kCols; ++j) {
#pragma GCC unroll 16
      for (int v = 0; v < kV; ++v) at<B>(c + j * ldc + v * B::kWidth)->value -= sum[j][v];
    }
    return;
  }
  double edge[B::kCols * B::kRows];
  std::memcpy(edge, sum, sizeof(edge));
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t r = 0; r < rows; ++r) c[j * ldc + r] -= edge[j * B::kRows + r];
  }
}

template <class B>
MX_EXAMPLE_INLINE void gemm_on(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b,
                               int64_t ldb, double* c, int64_t ldc) {
  const int64_t row_panels = (m + B::kRows - 1) / B::kRows;
  const int64_t column_panels = (n + B::kCols - 1) / B::kCols;
  const int64_t deepest = std::min(k, kDepth);
  double* const a_panels = packed_a.get(static_cast<size_t>(row_panels * B::kRows * deepest));
  double* const b_panels = packed_b.get(static_cast<size_t>(column_panels * B::kCols * deepest));
  for (int64_t p0 = 0; p0 < k; p0 += kDepth) {
    const int64_t depth = std::min(kDepth, k - p0);
    pack<B::kRows>(m, depth, a + p0 * lda, lda, a_panels);
    pack<B::kCols>(n, depth, b + p0 * ldb, ldb, b_panels);
    for (int64_t i = 0; i < row_panels; ++i) {
      const int64_t rows = std::min<int64_t>(B::kRows, m - i * B::kRows);
      for (int64_t j = 0; j < column_panels; ++j) {
        const int64_t cols = std::min<int64_t>(B::kCols, n - j * B::kCols);
        micro_kernel<B>(depth, a_panels + i * B::kRows * depth, b_panels + j * B::kCols * depth,
                        c + j * B::kCols * ldc + i * B::kRows, ldc, rows, cols);
      }
    }
  }
}

// Solves strip by strip of kRows rows: the rows are independent, so each lane of a vector has its own.
template <class B>
MX_EXAMPLE_INLINE void solve_on(int64_t m, int64_t n, const double* l, int64_t ldl, double* b, int64_t ldb) {
  using Vector = typename B::Vector;
  constexpr int kV = B::kVectorsPerColumn;
  Vector x[kSolveBlock][kV] = {};
  for (int64_t i0 = 0; i0 < m; i0 += B::kRows) {
    const size_t bytes = static_cast<size_t>(std::min<int64_t>(B::kRows, m - i0)) * sizeof(double);
    for (int64_t j = 0; j < n; ++j) {
      std::memcpy(x[j], b + j * ldb + i0, bytes);
      Vector value[kV];
#pragma GCC unroll 16
      for (int v = 0; v < kV; ++v) value[v] = x[j][v];
      for (int64_t p = 0; p < j; ++p) {
        const double factor = l[p * ldl + j];
#pragma GCC unroll 16
        for (int v = 0; v < kV; ++v) value[v] -= x[p][v] * factor;
      }
      const double inverse = 1.0 / l[j * ldl + j];
#pragma GCC unroll 16
      for (int v = 0; v < kV; ++v) x[j][v] = value[v] * inverse;
      std::memcpy(b + j * ldb + i0, x[j], bytes);
    }
  }
}

// Enough independent sums to hide the latency of a multiply-add on two units: 24 of 32 registers of 8
// doubles, 12 of 16 of 4 doubles, 8 of (at least) 16 of 2 doubles accumulate.
#define MX_EXAMPLE_KERNELS(SUFFIX, ATTRIBUTE, GEMM_BLOCKING, SOLVE_BLOCKING)                   \
  ATTRIBUTE void gemm_##SUFFIX(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,  \
                               const double* b, int64_t ldb, double* c, int64_t ldc) {         \
    gemm_on<GEMM_BLOCKING>(m, n, k, a, lda, b, ldb, c, ldc);                                   \
  }                                                                                            \
  ATTRIBUTE void solve_##SUFFIX(int64_t m, int64_t n, const double* l, int64_t ldl, double* b, \
                                int64_t ldb) {                                                 \
    solve_on<SOLVE_BLOCKING>(m, n, l, ldl, b, ldb);                                            \
  }

using Gemm512 = Blocking<64, 4, 6>;
using Solve512 = Blocking<64, 4, 1>;
using Gemm256 = Blocking<32, 2, 6>;
using Solve256 = Blocking<32, 4, 1>;
using Gemm128 = Blocking<16, 2, 4>;
using Solve128 = Blocking<16, 4, 1>;

MX_EXAMPLE_KERNELS(portable, , Gemm128, Solve128)
#if defined(__x86_64__)
MX_EXAMPLE_KERNELS(avx2, __attribute__((target("avx2,fma"))), Gemm256, Solve256)
MX_EXAMPLE_KERNELS(avx512, __attribute__((target("avx512f,fma"))), Gemm512, Solve512)
#endif

std::vector<SimdKernels> available() {
  std::vector<SimdKernels> kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) kernels.push_back({"avx512f", gemm_avx512, solve_avx512});
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernels.push_back({"avx2", gemm_avx2, solve_avx2});
  }
#endif
  kernels.push_back({"portable", gemm_portable, solve_portable});
  return kernels;
}

const std::vector<SimdKernels>& all() {
  static const std::vector<SimdKernels> kernels = available();
  return kernels;
}

}  // namespace

const SimdKernels& simd_kernels() { return all().front(); }
int num_simd_kernels() { return static_cast<int>(all().size()); }
const SimdKernels& simd_kernels(int index) { return all()[static_cast<size_t>(index)]; }

}  // namespace cholesky::detail
