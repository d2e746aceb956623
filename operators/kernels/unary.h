// Elementwise functions of one operand on the CPU.
//
// The bits of an element of the result depend only on the operand's value and on the processor's instruction
// set, not on the layout, the position, the number of threads, or whether the result is written in place.
//
// Accuracy of float32: within 2 units in the last place of the exact result; sigmoid within 2.5, silu within
// 3.5, gelu within 6; a quarter more on processors without fused multiply-add. Of float64: within 2 for tan,
// erf, erfc, softplus and gelu, otherwise within 4.5; near the zeros of lgamma below 0 the C library computes
// it, within 7. digamma has an absolute error of some units of 1e-16 near its zeros, so a large relative one.
// The rounding error of the exponent is amplified in gelu_tanh of numbers below -2.5 (26 units at -5), and
// without fused multiply-add in erfc and gelu. float16 and bfloat16 are computed in float32 and rounded once.
// Special values are those of C's <cmath>. Integers wrap on overflow: abs and neg of the smallest value are
// that value.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

enum class UnaryOp : uint8_t {
  // The result has the operand's type. bool only if the operation has a meaning for it (see unary_supports).
  copy,
  neg,
  abs,
  sign,  ///< -1, 0, 1; NaN for NaN
  square,
  relu,  ///< max(x, 0); NaN for NaN
  floor,
  ceil,
  round,  ///< to nearest, ties to even
  trunc,
  // The result is of floating point; integers and bool are converted to float32 first.
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sqrt,
  rsqrt,
  cbrt,
  reciprocal,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  erfc,
  lgamma,
  sigmoid,
  softplus,   ///< log(1 + exp(x))
  silu,       ///< x * sigmoid(x)
  gelu,       ///< x * (1 + erf(x / sqrt(2))) / 2
  gelu_tanh,  ///< x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
  // Integers and bool:
  bitwise_not,  ///< for bool: not
  // Any type as operand; the result is bool:
  logical_not,
  isnan,
  isinf,
  isfinite,
  signbit,
};

inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::signbit) + 1;

/// Returns the name: "exp", ...
const char* to_string(UnaryOp op);

/// Returns true if the operation accepts elements of this type.
bool unary_supports(UnaryOp op, DType in);
/// Returns the type of the operation's result.
DType unary_result(UnaryOp op, DType in);

/// out[i] = op(in[i]). Same shape, out.dtype == unary_result(op, in.dtype). out may be the same elements as
/// in, in the same order, but must not overlap it otherwise. Runs on several threads if large. Throws
/// InvalidArgument.
void unary(UnaryOp op, const Tensor& out, const Tensor& in);

}  // namespace mx::kernels
