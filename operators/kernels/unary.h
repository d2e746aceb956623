// Elementwise functions of one operand on the CPU.
//
// Every element's bits depend on its value and on the processor's instruction set alone: not on the layout,
// the position, the number of threads, or whether the result is written in place.
//
// Accuracy of float32: within 2 units in the last place of the exact result; silu within 3, gelu within 5; a
// quarter more on processors that do not multiply and add in one instruction. Of float64: within 4, except
// gelu and gelu_tanh, whose far negative tails amplify the rounding of the exponent. float16 and bfloat16 are
// computed in float32 and rounded once. Special values are those of C's <cmath>. Integers wrap on overflow:
// abs and neg of the smallest value are that value.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

enum class UnaryOp : uint8_t {
  // Same type; of bool where that has a meaning (see unary_supports).
  copy,
  neg,
  abs,
  sign,  ///< -1, 0, 1; NaN of NaN
  square,
  relu,  ///< max(x, 0); NaN of NaN
  floor,
  ceil,
  round,  ///< to nearest, ties to even
  trunc,
  // Floating point; integers and bool are converted to float32 first.
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
  // Integers and bool.
  bitwise_not,  ///< of bool: not
  // Any type in, bool out.
  logical_not,
  isnan,
  isinf,
  isfinite,
  signbit,
};

inline constexpr int kUnaryOps = static_cast<int>(UnaryOp::signbit) + 1;

/// "exp", ...
const char* to_string(UnaryOp op);

/// Whether the operation takes elements of this type.
bool unary_supports(UnaryOp op, DType in);
/// The type of its result.
DType unary_result(UnaryOp op, DType in);

/// out[i] = op(in[i]). Same shape, out.dtype == unary_result(op, in.dtype); out may be the same elements as
/// in, in the same order, but must not overlap it otherwise. Runs on several threads when large. Throws
/// InvalidArgument.
void unary(UnaryOp op, const Tensor& out, const Tensor& in);

}  // namespace mx::kernels
