// gemm: C = alpha * A B + beta * C + bias, for operands of any strides, one product or a batch of them.
//
// The kernels are our own and run on the vector instructions of the processor at hand. Blocks of A and B are
// copied into the order in which a register tile reads them, sized for the caches, as in Goto and van de
// Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 34:3, 2008), and in BLIS.
//
// Arithmetic: f32 and f64 in their own type; f16 and bf16 in f32, rounded once at the end; integers wrap in
// their own type, and alpha and beta lose their fractions; bool is "or of ands", alpha and beta count as
// zero or not. With beta == 0 nothing of C is read; with alpha == 0 nothing of A and B.
//
// Repeatable: the order of the additions of an element depends on the shapes and strides of one product
// only: not on the number of threads, and not on whether the product is part of a batch. Another instruction
// set may round differently.
//
// Any thread may call; memory for packing belongs to the thread and is kept, at most a few MiB. C must not
// overlap A, B or the bias.
#pragma once

#include <cstdint>
#include <span>

#include "ndarray/dtype.h"

namespace mx::kernels {

/// A read-only matrix. Element (i, j) is at data + i * row_stride + j * col_stride, counted in elements;
/// strides have any sign and may be 0.
struct Matrix {
  const void* data = nullptr;
  int64_t row_stride = 0, col_stride = 0;
};

struct GemmOptions {
  double alpha = 1, beta = 0;
  const void* bias = nullptr;  ///< a row of n elements of the same type that is added to every row of C
  int64_t bias_stride = 1;     ///< in elements
};

/// C (m x n) = alpha * A (m x k) B (k x n) + beta * C + bias; for k == 0 what remains without A B.
/// Throws InvalidArgument for a negative size and when two elements of C share an address.
void gemm(DType dtype, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, void* c,
          int64_t c_row_stride, int64_t c_col_stride, const GemmOptions& options = {});

/// A dimension of a batch: `size` products, whose operands are so many elements apart. 0 for an operand that
/// is broadcast along it; not for C.
struct BatchDim {
  int64_t size = 1;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};

/// gemm for every index of `batch` (any number of dimensions up to kMaxRank); all of them have the shapes,
/// strides and options given. Bit for bit what gemm gives for each alone.
void gemm_batched(DType dtype, std::span<const BatchDim> batch, int64_t m, int64_t n, int64_t k,
                  const Matrix& a, const Matrix& b, void* c, int64_t c_row_stride, int64_t c_col_stride,
                  const GemmOptions& options = {});

}  // namespace mx::kernels
