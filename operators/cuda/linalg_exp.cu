// Exponentials of stacks of square matrices: operators/kernels/linalg.h. A block computes one matrix, in
// double, by scaling, a Padé approximant and squaring, as the CPU does.
#include <cmath>

#include "operators/cuda/linalg.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/matrix_exp_formulas.h"

namespace mx::cuda {
namespace {

constexpr int kExpParts = 7;  // matrices of memory for each argument

/// c = a b for matrices (n, n).
__device__ inline void multiply(const double* a, const double* b, double* c, int64_t n) {
  barrier();
  for (int64_t at = threadIdx.x; at < n * n; at += kBlock) {
    const int64_t i = at / n, j = at % n;
    double sum = 0;
    for (int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
    c[at] = sum;
  }
  barrier();
}

/// to = x0 + x1 a2 + x2 a4 + x3 a6 + added; a2, a4 and a6 follow one another, `added` may be null.
__device__ inline void combine_powers(double* to, const double* a2, double x0, double x1, double x2,
                                      double x3, const double* added, int64_t n) {
  const int64_t size = n * n;
  barrier();
  for (int64_t at = threadIdx.x; at < size; at += kBlock) {
    const double sum =
        (at / n == at % n ? x0 : 0) + x1 * a2[at] + x2 * a2[size + at] + x3 * a2[2 * size + at];
    to[at] = added != nullptr ? sum + added[at] : sum;
  }
  barrier();
}

/// The largest sum of the magnitudes of a column.
__device__ inline double norm_of(const double* a, int64_t n) {
  double norm = 0;
  for (int64_t j = threadIdx.x; j < n; j += kBlock) {
    double column = 0;
    for (int64_t i = 0; i < n; ++i) column += std::fabs(a[i * n + j]);
    norm = Larger()(norm, column);
  }
  return Group<kBlock>::all(norm, Larger());
}

/// Replaces each of the matrices a (n, n) by its exponential. `memory`: kExpParts - 1 matrices for each.
__global__ void __launch_bounds__(kBlock)
    find_exponentials(double* matrices, double* memory, int64_t* pivots, int64_t n) {
  const int64_t item = blockIdx.x, size = n * n;
  double* const a = matrices + item * size;
  double *const a2 = memory + item * (kExpParts - 1) * size, *const a4 = a2 + size, *const a6 = a4 + size,
                *const u = a6 + size, *const v = u + size, *const sum = v + size;
  int64_t* const exchanged = pivots + item * n;
  const auto b = [](int i) { return formulas::matrix_exp_coefficient(i); };
  const int halvings = formulas::matrix_exp_halvings(norm_of(a, n));
  for (int64_t at = threadIdx.x; at < size; at += kBlock) a[at] = std::ldexp(a[at], -halvings);
  multiply(a, a, a2, n);
  multiply(a2, a2, a4, n);
  multiply(a4, a2, a6, n);
  // The odd powers: u = a (a6 (b13 a6 + b11 a4 + b9 a2) + b7 a6 + b5 a4 + b3 a2 + b1).
  combine_powers(sum, a2, 0, b(9), b(11), b(13), nullptr, n);
  multiply(a6, sum, v, n);
  combine_powers(sum, a2, b(1), b(3), b(5), b(7), v, n);
  multiply(a, sum, u, n);
  // The even powers: v = a6 (b12 a6 + b10 a4 + b8 a2) + b6 a6 + b4 a4 + b2 a2 + b0.
  combine_powers(sum, a2, 0, b(8), b(10), b(12), nullptr, n);
  multiply(a6, sum, v, n);
  combine_powers(sum, a2, b(0), b(2), b(4), b(6), v, n);
  // (sum - u) y = sum + u
  for (int64_t at = threadIdx.x; at < size; at += kBlock) {
    a[at] = sum[at] + u[at];
    v[at] = sum[at] - u[at];
  }
  factor_lu(v, n, n, exchanged, nullptr);
  for (int64_t k = 0; k < n; ++k) {
    if (exchanged[k] != k) swap_rows(a, n, k, exchanged[k]);
    barrier();
  }
  solve_triangle(v, n, a, n, false, true);
  solve_triangle(v, n, a, n, true, false);
  for (int k = 0; k < halvings; ++k) {
    multiply(a, a, sum, n);
    for (int64_t at = threadIdx.x; at < size; at += kBlock) a[at] = sum[at];
  }
}

}  // namespace

void linalg_matrix_exp(const KernelArgs& args) {
  const Tensor &x = args.in[0], &y = args.out[0];
  if (y.numel() == 0) return;
  const int64_t n = x.shape[x.rank() - 1], count = matrices_of(x);
  const Operand a(args, x, DType::f64, true), memory(args, DType::f64, {count, kExpParts - 1, n, n}),
      pivots(args, DType::i64, {count, n});
  launch(stream_of(args), whole_grid(count), kBlock, 0, find_exponentials, a->as<double>(),
         memory->as<double>(), pivots->as<int64_t>(), n);
  copy_elements(stream_of(args), y, *a);
}

}  // namespace mx::cuda
