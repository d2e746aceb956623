// Elementwise functions of two operands on the CPU, and where and clamp.
//
// The bits of an element of the result depend only on its operands and on the processor's instruction set,
// not on the layout, the position, the number of threads, or whether the result is written in place.
//
// Accuracy: add to fmod are rounded as IEEE 754 demands; pow, atan2, hypot and logaddexp are within 2 units
// in the last place of float32 and 4 of float64; the derivatives of activations are within 4 units in the
// last place of 1, times a, and the cross entropy is within 4 units of its larger term. float16 and bfloat16
// are computed in float32 and rounded once.
//
// Integers never trap: add, sub, mul and pow wrap; x floor_div 0, x mod 0 and x fmod 0 are 0; the smallest
// value floor_div -1 is itself, because it wraps. pow with a negative exponent is the exact power truncated:
// 1 or -1 for the bases 1 and -1, and 0 for all others, including the base 0. A shift by a negative count, or
// by the width or more, shifts all bits out: the result is 0, or -1 for the right shift of a negative number.
#pragma once

#include <cstdint>
#include <optional>

#include "ndarray/scalar.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

enum class BinaryOp : uint8_t {
  add,
  sub,
  mul,
  floor_div,  ///< as NumPy: the floor of the exact quotient
  mod,        ///< sign of the divisor, as in Python
  fmod,       ///< sign of the dividend, as in C
  pow,
  maximum,  ///< NaN if either is
  minimum,
  fmax,  ///< if one operand is NaN, the other operand
  fmin,
  // Floating point only:
  div,
  atan2,
  hypot,
  copysign,
  nextafter,  ///< in the type of the operands; float32 and float64 only
  logaddexp,  ///< log(exp(a) + exp(b))
  // a times the derivative of an activation. For relu, tanh and sigmoid b is the activation's result, for the
  // others its operand.
  relu_backward,  ///< a, and 0 where b <= 0
  tanh_backward,
  sigmoid_backward,
  silu_backward,
  gelu_backward,
  gelu_tanh_backward,
  binary_cross_entropy,  ///< -b log(a) - (1 - b) log(1 - a), logarithms at least -100
  // Any type as operands; the result is bool:
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  logical_xor,
  // Integers and bool:
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  left_shift,  ///< integers only
  right_shift,
};

inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::right_shift) + 1;

/// Returns the name: "add", ...
const char* to_string(BinaryOp op);

/// Returns true if the operation can compute in this type. For bool add is "or" and mul is "and".
bool binary_supports(BinaryOp op, DType computing);
/// Returns the type of the operation's result: `computing`, or bool for comparisons and logical operations.
DType binary_result(BinaryOp op, DType computing);

/// out[i] = op(a[i], b[i]). All have one shape; broadcast operands have strides of 0. The type of the
/// computation is that of `out`, or promote(a.dtype, b.dtype) if the result is bool. Operands of other types
/// are converted to it block by block, without a temporary array. out may be the same elements as a or b, in
/// the same order, but must not overlap them otherwise. Runs on several threads if the operands are large.
/// Throws InvalidArgument.
void binary(BinaryOp op, const Tensor& out, const Tensor& a, const Tensor& b);

/// out[i] = op(a[i], number), or op(number, a[i]) if `left`.
///
/// Comparisons are exact: neither elements nor the number are rounded, with one exception. A floating-point
/// number that is compared with floating-point elements is first rounded to their type, unless that makes it
/// 0 or infinite. So x == 0.1 is true for the float 0.1f. Logical operations use the truth value of the
/// number. All other operations convert the number to the type of the computation, which is float32 for
/// float16 and bfloat16.
///
/// pow with the exponents 0, 0.5, 1, 1.5, 2, 3, 4, -0.5, -1 and -2 uses multiplications, divisions and square
/// roots, within the accuracy above.
void binary_number(BinaryOp op, const Tensor& out, const Tensor& a, const Scalar& number, bool left);

/// out[i] = condition[i] ? a[i] : b[i]. condition is converted to bool, a and b to the type of out.
void where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b);

/// out[i] = min(max(x[i], low[i]), high[i]) in the type of out; NaN if any of the three is NaN. If low >
/// high, the result is high.
void clamp(const Tensor& out, const Tensor& x, const Tensor& low, const Tensor& high);
/// The same with numbers as limits; a missing limit does not apply.
void clamp(const Tensor& out, const Tensor& x, const std::optional<Scalar>& low,
           const std::optional<Scalar>& high);

}  // namespace mx::kernels
