// Elementwise operators of two operands: arithmetic, comparison, logic, bits.
//
// Shapes broadcast as in NumPy, and types are promoted as in PyTorch (dtype.h). A C++ number is converted to
// the array's type, unless the number's category is higher. A number is an attribute of the call, not an
// array: `x + 1` is one operation, recorded with its number. Each operator has a second record for this form
// ("add_scalar" and so on).
//
// Comparisons with numbers are exact for all types: for u8, x < 256 is true everywhere. One exception: next
// to floating-point elements, a floating-point number is first converted to their type, so that x == 0.1 is
// true for the f32 element 0.1f. In all other operators a number must fit the integer type of the
// computation: for u8, x + 300 and maximum(x, 300) throw, but minimum(x, 300) is x. In floating point the
// number is rounded, and may become infinite.
//
// All throw InvalidArgument for shapes that do not broadcast, types that the operator does not take, numbers
// that do not fit, and arrays on different devices. operators/kernels/binary.h defines special values,
// integer overflow and division by zero.
#pragma once

#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

NDArray add(const Operand& a, const Operand& b);
NDArray sub(const Operand& a, const Operand& b);
NDArray mul(const Operand& a, const Operand& b);
NDArray div(const Operand& a, const Operand& b);  ///< true division: integers give f32
NDArray floor_div(const Operand& a, const Operand& b);
NDArray mod(const Operand& a, const Operand& b);   ///< with the sign of the divisor
NDArray fmod(const Operand& a, const Operand& b);  ///< with the sign of the dividend
NDArray pow(const Operand& a, const Operand& b);
NDArray maximum(const Operand& a, const Operand& b);  ///< NaN if either operand is NaN
NDArray minimum(const Operand& a, const Operand& b);
NDArray fmax(const Operand& a, const Operand& b);  ///< if one operand is NaN, the other one
NDArray fmin(const Operand& a, const Operand& b);
NDArray atan2(const Operand& y, const Operand& x);
NDArray hypot(const Operand& a, const Operand& b);
NDArray copysign(const Operand& magnitude, const Operand& sign);
NDArray nextafter(const Operand& from, const Operand& towards);
NDArray logaddexp(const Operand& a, const Operand& b);

NDArray equal(const Operand& a, const Operand& b);
NDArray not_equal(const Operand& a, const Operand& b);
NDArray less(const Operand& a, const Operand& b);
NDArray less_equal(const Operand& a, const Operand& b);
NDArray greater(const Operand& a, const Operand& b);
NDArray greater_equal(const Operand& a, const Operand& b);
NDArray logical_and(const Operand& a, const Operand& b);
NDArray logical_or(const Operand& a, const Operand& b);
NDArray logical_xor(const Operand& a, const Operand& b);
NDArray bitwise_and(const Operand& a, const Operand& b);
NDArray bitwise_or(const Operand& a, const Operand& b);
NDArray bitwise_xor(const Operand& a, const Operand& b);
NDArray left_shift(const Operand& a, const Operand& b);
NDArray right_shift(const Operand& a, const Operand& b);

// d(loss)/dx from dy = d(loss)/dy. The second operand is the result y for relu, tanh and sigmoid, and the
// input x for silu, gelu and gelu_tanh.
NDArray relu_backward(const Operand& dy, const Operand& y);
NDArray tanh_backward(const Operand& dy, const Operand& y);
NDArray sigmoid_backward(const Operand& dy, const Operand& y);
NDArray silu_backward(const Operand& dy, const Operand& x);
NDArray gelu_backward(const Operand& dy, const Operand& x);
NDArray gelu_tanh_backward(const Operand& dy, const Operand& x);

/// Returns -target log(x) - (1 - target) log(1 - x) for each element, without the reduction of bce_loss.
/// Logarithms are at least -100. The derivative is PyTorch's, which is finite where x is 0 or 1.
NDArray binary_cross_entropy(const Operand& x, const Operand& target);

inline NDArray operator+(const Operand& a, const Operand& b) { return add(a, b); }
inline NDArray operator-(const Operand& a, const Operand& b) { return sub(a, b); }
inline NDArray operator*(const Operand& a, const Operand& b) { return mul(a, b); }
inline NDArray operator/(const Operand& a, const Operand& b) { return div(a, b); }
inline NDArray operator%(const Operand& a, const Operand& b) { return mod(a, b); }
inline NDArray operator==(const Operand& a, const Operand& b) { return equal(a, b); }
inline NDArray operator!=(const Operand& a, const Operand& b) { return not_equal(a, b); }
inline NDArray operator<(const Operand& a, const Operand& b) { return less(a, b); }
inline NDArray operator<=(const Operand& a, const Operand& b) { return less_equal(a, b); }
inline NDArray operator>(const Operand& a, const Operand& b) { return greater(a, b); }
inline NDArray operator>=(const Operand& a, const Operand& b) { return greater_equal(a, b); }
inline NDArray operator&(const Operand& a, const Operand& b) { return bitwise_and(a, b); }
inline NDArray operator|(const Operand& a, const Operand& b) { return bitwise_or(a, b); }
inline NDArray operator^(const Operand& a, const Operand& b) { return bitwise_xor(a, b); }
inline NDArray operator<<(const NDArray& a, const Operand& b) { return left_shift(a, b); }
inline NDArray operator>>(const NDArray& a, const Operand& b) { return right_shift(a, b); }

// In place: the array keeps its type and shape. Throw InvalidArgument if the result does not fit.
NDArray& operator+=(NDArray& a, const Operand& b);
NDArray& operator-=(NDArray& a, const Operand& b);
NDArray& operator*=(NDArray& a, const Operand& b);
NDArray& operator/=(NDArray& a, const Operand& b);
NDArray& operator%=(NDArray& a, const Operand& b);
NDArray& operator&=(NDArray& a, const Operand& b);
NDArray& operator|=(NDArray& a, const Operand& b);
NDArray& operator^=(NDArray& a, const Operand& b);
NDArray& operator<<=(NDArray& a, const Operand& b);
NDArray& operator>>=(NDArray& a, const Operand& b);
// The same for a view that has no name: a.transpose() += b.
inline NDArray operator+=(NDArray&& a, const Operand& b) { return a += b; }
inline NDArray operator-=(NDArray&& a, const Operand& b) { return a -= b; }
inline NDArray operator*=(NDArray&& a, const Operand& b) { return a *= b; }
inline NDArray operator/=(NDArray&& a, const Operand& b) { return a /= b; }
inline NDArray operator%=(NDArray&& a, const Operand& b) { return a %= b; }
inline NDArray operator&=(NDArray&& a, const Operand& b) { return a &= b; }
inline NDArray operator|=(NDArray&& a, const Operand& b) { return a |= b; }
inline NDArray operator^=(NDArray&& a, const Operand& b) { return a ^= b; }
inline NDArray operator<<=(NDArray&& a, const Operand& b) { return a <<= b; }
inline NDArray operator>>=(NDArray&& a, const Operand& b) { return a >>= b; }
// The same for a[i] += b, also with arrays in the index. A named view is an NDArray and uses the overloads
// above.
const View& operator+=(View&& a, const Operand& b);
const View& operator-=(View&& a, const Operand& b);
const View& operator*=(View&& a, const Operand& b);
const View& operator/=(View&& a, const Operand& b);
const View& operator%=(View&& a, const Operand& b);
const View& operator&=(View&& a, const Operand& b);
const View& operator|=(View&& a, const Operand& b);
const View& operator^=(View&& a, const Operand& b);
const View& operator<<=(View&& a, const Operand& b);
const View& operator>>=(View&& a, const Operand& b);

}  // namespace mx
