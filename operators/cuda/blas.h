// Products of matrices on a GPU: by cuBLASLt, or by a plain kernel for what the library does not compute.
//
// f32 and f64 are computed in their own type, f16 and bf16 in f32 and rounded once. With set_tf32(true)
// (operators/matmul.h), f32 operands are rounded to TF32. Results repeat bit for bit on one kind of GPU.
//
// Memory: workspace comes from Scratch at each call, as much as the algorithm needs, so calls on several
// streams and replays of a graph share none. The choice of an algorithm is kept for each problem.
//
// Thread-safety: any thread may call.
#pragma once

#include <cstdint>
#include <span>

#include "ndarray/dtype.h"
#include "ndarray/launch.h"
#include "operators/kernels/gemm.h"

namespace mx::cuda {

/// C (m, n) = alpha * A (m, k) B (k, n) + beta * C + bias for every index of `batch`, as kernels::gemm.
struct Product {
  DType in = DType::f32;   ///< of A and B
  DType out = DType::f32;  ///< of C and the bias: that of A and B; or f32 for f16 and bf16
  int64_t m = 0, n = 0, k = 0;
  kernels::Matrix a, b;
  void* c = nullptr;
  int64_t c_row_stride = 0, c_col_stride = 1;
  std::span<const kernels::BatchDim> batch{};
  double alpha = 1, beta = 0;
  const void* bias = nullptr;  ///< a row of n elements, added to every row of C
  int64_t bias_stride = 1;
};

/// Enqueues the product on the kernel's stream.
void multiply(const KernelArgs& args, const Product& product);

/// The same by the plain kernel, which takes any types and strides and needs no workspace. Slow for large
/// matrices.
void multiply_plainly(const KernelArgs& args, const Product& product);

/// Returns true if cuBLASLt can read a matrix (rows, columns) with these strides.
bool is_blas_matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t col_stride);

}  // namespace mx::cuda
