// gemm: C = alpha * A B + beta * C + bias, for operands of any strides, one product or a batch of them.
//
// The kernels use the vector instructions of the processor on which they run. Blocks of A and B, sized for
// the caches, are copied into the order in which a register tile reads them, as in Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34:3, 2008), and in BLIS.
//
// Arithmetic: f32 and f64 are computed in their own type; f16 and bf16 in f32, rounded once at the end.
// Integers wrap in their own type, and the fractions of alpha and beta are dropped. For bool, addition is
// "or" and multiplication is "and", and alpha and beta only count as zero or not zero. With beta == 0 C is
// not read; with alpha == 0 A and B are not read.
//
// Repeatable: the order in which the terms of an element are added depends only on the shapes and strides of
// one product. It does not depend on the number of threads, nor on whether the product is part of a batch.
// Another instruction set may round differently: bf16 uses the dot instruction of processors that have it
// (gemm_dot.h).
//
// Thread-safety: any thread may call. Each thread keeps its memory for packing, at most a few MiB, for later
// calls. C must not overlap A, B or the bias.
#pragma once

#include <cstdint>
#include <span>

#include "ndarray/dtype.h"

namespace mx::kernels {

/// A read-only matrix. Element (i, j) is at data + i * row_stride + j * col_stride, counted in elements.
/// Strides may be negative or 0.
struct Matrix {
  const void* data = nullptr;
  int64_t row_stride = 0, col_stride = 0;
};

struct GemmOptions {
  double alpha = 1, beta = 0;
  const void* bias = nullptr;  ///< a row of n elements of the same type that is added to every row of C
  int64_t bias_stride = 1;     ///< in elements
  bool i32_result = false;     ///< for i8 and u8: C has i32, and sums wrap in it instead of in 8 bits
};

/// Computes C (m x n) = alpha * A (m x k) B (k x n) + beta * C + bias. For k == 0 the product A B is 0.
/// Throws InvalidArgument if a size is negative or if two elements of C share an address.
void gemm(DType dtype, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, void* c,
          int64_t c_row_stride, int64_t c_col_stride, const GemmOptions& options = {});

/// A dimension of a batch: `size` products, whose operands are the given numbers of elements apart. An
/// operand that is broadcast along the dimension has a stride of 0; C must not be.
struct BatchDim {
  int64_t size = 1;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};

/// Runs gemm for every index of `batch`, which has at most kMaxRank dimensions. All products have the given
/// shapes, strides and options. Each result is bit for bit that of gemm for this product alone.
void gemm_batched(DType dtype, std::span<const BatchDim> batch, int64_t m, int64_t n, int64_t k,
                  const Matrix& a, const Matrix& b, void* c, int64_t c_row_stride, int64_t c_col_stride,
                  const GemmOptions& options = {});

}  // namespace mx::kernels
