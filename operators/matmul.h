// Products of matrices and vectors.
//
// Views (transposed, sliced, broadcast) are read in place, without copies. Types are promoted as in dtype.h.
// f16 and bf16 are accumulated in f32 and rounded once; integers wrap; for bool, "and" replaces the product
// and "or" the sum (operators/kernels/gemm.h). A sum of no products is 0. All throw InvalidArgument for
// shapes that do not fit; the message names both.
#pragma once

#include "operators/operator.h"

namespace mx {

struct AddmmAttrs {
  double alpha = 1;
  double beta = 1;
  template <class V>
  static void fields(V&& v) {
    v("alpha", &AddmmAttrs::alpha, "the factor of the matrix product");
    v("beta", &AddmmAttrs::beta, "the factor of c; 0: c is not read");
  }
};

/// The matrix product, as NumPy's matmul: the last two dimensions are matrices (m, k) and (k, n), and the
/// other dimensions broadcast. A vector on the left is a row, a vector on the right is a column; the result
/// does not have that dimension. Rank 0 is not allowed.
NDArray matmul(const Arg& a, const NDArray& b);

/// The matrix product of two arrays of i8, or of two of u8, with sums and results of i32, for quantised
/// networks. Sums beyond i32 wrap. Not differentiable. GPUs have no kernel for it yet.
NDArray matmul_i32(const Arg& a, const NDArray& b);

/// x weight' + bias, where weight' is the transpose: x (..., in), weight (out, in) and bias (out,) give
/// (..., out).
NDArray linear(const Arg& x, const NDArray& weight);
NDArray linear(const Arg& x, const NDArray& weight, const NDArray& bias);

/// The inner product of two vectors of the same length.
NDArray dot(const Arg& a, const NDArray& b);
/// The outer product: (m,) and (n,) give (m, n), the product of every pair.
NDArray outer(const Arg& a, const NDArray& b);
/// beta * c + alpha * a b for matrices a (m, k) and b (k, n); c broadcasts to (m, n). For integers, alpha and
/// beta are truncated.
NDArray addmm(const Arg& c, const NDArray& a, const NDArray& b, RealArg alpha = 1, RealArg beta = 1);

/// Allows products and convolutions of f32 on GPUs to round their operands to TF32, which has the 10-bit
/// mantissa of f16: several times as fast. The environment variable MX_TF32=1 allows it too. The CPU ignores
/// it. Any thread may call.
void set_tf32(bool allowed);
bool tf32();

}  // namespace mx
