// Elementwise functions of two operands on the CPU, and choice and clamping.
//
// Every element's bits depend on its operands and on the processor's instruction set alone: not on the
// layout, the position, the number of threads, or whether the result is written in place.
//
// Accuracy: add to fmod as IEEE 754 rounds them; pow, atan2, hypot, logaddexp within 2 units in the last
// place of float32 and 4 of float64; derivatives of activations within 4 units of 1, times a, and the cross
// entropy within 4 units of its larger term. float16 and bfloat16 are computed in float32 and rounded once.
//
// Integers never trap: add, sub, mul and pow wrap; x floor_div 0, x mod 0 and x fmod 0 are 0; the smallest
// value floor_div -1 is itself (it wraps); pow with a negative exponent is the exact power truncated: 1 or -1
// for the bases 1 and -1, 0 for all others (0 too). A shift by a negative count or by the width or more
// shifts all bits out: 0, or -1 for the right shift of a negative number.
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
  mod,        ///< sign of the divisor, as Python
  fmod,       ///< sign of the dividend, as C
  pow,
  maximum,  ///< NaN if either is
  minimum,
  fmax,  ///< the other if one is NaN
  fmin,
  // Floating point only.
  div,
  atan2,
  hypot,
  copysign,
  nextafter,  ///< in the type of the operands; float32 and float64 only
  logaddexp,  ///< log(exp(a) + exp(b))
  // a times the derivative of an activation: of those above at the result b, of the others at the operand b.
  relu_backward,  ///< a, and 0 where b <= 0
  tanh_backward,
  sigmoid_backward,
  silu_backward,
  gelu_backward,
  gelu_tanh_backward,
  binary_cross_entropy,  ///< -b log(a) - (1 - b) log(1 - a), logarithms at least -100
  // Any type in, bool out.
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  logical_xor,
  // Integers and bool.
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  left_shift,  ///< integers only
  right_shift,
};

inline constexpr int kBinaryOps = static_cast<int>(BinaryOp::right_shift) + 1;

/// "add", ...
const char* to_string(BinaryOp op);

/// Whether the operation can compute in this type. bool adds as "or" and multiplies as "and".
bool binary_supports(BinaryOp op, DType computing);
/// The type of its result: `computing`, or bool for comparisons and logical operations.
DType binary_result(BinaryOp op, DType computing);

/// out[i] = op(a[i], b[i]). All of one shape (broadcast operands have strides of 0). The type to compute in
/// is that of `out`, or promote(a.dtype, b.dtype) where the result is bool; operands of other types are
/// converted to it block by block, with no temporary. out may be the same elements as a or b, in the same
/// order, but must not overlap them otherwise. Runs on several threads when large. Throws InvalidArgument.
void binary(BinaryOp op, const Tensor& out, const Tensor& a, const Tensor& b);

/// out[i] = op(a[i], number), or op(number, a[i]) where the number is on the left.
///
/// Comparisons are exact: no element and no number is rounded, with one exception. A floating-point number
/// that meets floating-point elements is first rounded to their type, unless that makes it 0 or infinite:
/// then x == 0.1 is true of the float that is written 0.1f. Logical operations look at the number's truth.
/// All others compute with the number as the type of computation has it (float32 for the halves).
///
/// pow with the exponents 0, 0.5, 1, 1.5, 2, 3, 4, -0.5, -1 and -2 multiplies, divides and takes roots,
/// within the accuracy above.
void binary_number(BinaryOp op, const Tensor& out, const Tensor& a, const Scalar& number, bool left);

/// out[i] = condition[i] ? a[i] : b[i]. condition is converted to bool, a and b to the type of out.
void where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b);

/// out[i] = min(max(x[i], low[i]), high[i]) in the type of out; NaN if any of the three is. Where low > high
/// the result is high.
void clamp(const Tensor& out, const Tensor& x, const Tensor& low, const Tensor& high);
/// The same with numbers; a limit may be missing.
void clamp(const Tensor& out, const Tensor& x, const std::optional<Scalar>& low,
           const std::optional<Scalar>& high);

}  // namespace mx::kernels
