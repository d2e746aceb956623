// Elementwise operators of one operand.
//
// Floating-point functions of integers and bool give f32. operators/kernels/unary.h states accuracy and
// special values. All throw InvalidArgument for types that they do not take.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

NDArray neg(const Arg& x);          ///< -x; integers wrap.
NDArray abs(const Arg& x);          ///< The magnitude.
NDArray sign(const Arg& x);         ///< -1, 0 or 1; NaN of NaN.
NDArray square(const Arg& x);       ///< x * x.
NDArray relu(const Arg& x);         ///< max(x, 0).
NDArray floor(const Arg& x);        ///< The largest integer that is not above x.
NDArray ceil(const Arg& x);         ///< The smallest integer that is not below x.
NDArray round(const Arg& x);        ///< The nearest integer; ties go to the even one.
NDArray trunc(const Arg& x);        ///< x without its fraction.
NDArray exp(const Arg& x);          ///< e to the power of x.
NDArray exp2(const Arg& x);         ///< 2 to the power of x.
NDArray expm1(const Arg& x);        ///< exp(x) - 1, exact near 0.
NDArray log(const Arg& x);          ///< The natural logarithm.
NDArray log2(const Arg& x);         ///< The logarithm to base 2.
NDArray log10(const Arg& x);        ///< The logarithm to base 10.
NDArray log1p(const Arg& x);        ///< log(1 + x), exact near 0.
NDArray sqrt(const Arg& x);         ///< The square root.
NDArray rsqrt(const Arg& x);        ///< 1 / sqrt(x).
NDArray cbrt(const Arg& x);         ///< The cube root.
NDArray reciprocal(const Arg& x);   ///< 1 / x.
NDArray sin(const Arg& x);          ///< The sine.
NDArray cos(const Arg& x);          ///< The cosine.
NDArray tan(const Arg& x);          ///< The tangent.
NDArray asin(const Arg& x);         ///< The inverse of the sine.
NDArray acos(const Arg& x);         ///< The inverse of the cosine.
NDArray atan(const Arg& x);         ///< The inverse of the tangent.
NDArray sinh(const Arg& x);         ///< The hyperbolic sine.
NDArray cosh(const Arg& x);         ///< The hyperbolic cosine.
NDArray tanh(const Arg& x);         ///< The hyperbolic tangent.
NDArray asinh(const Arg& x);        ///< The inverse of the hyperbolic sine.
NDArray acosh(const Arg& x);        ///< The inverse of the hyperbolic cosine.
NDArray atanh(const Arg& x);        ///< The inverse of the hyperbolic tangent.
NDArray erf(const Arg& x);          ///< The error function.
NDArray erfc(const Arg& x);         ///< 1 - erf(x), exact for large x.
NDArray lgamma(const Arg& x);       ///< The logarithm of the magnitude of the gamma function.
NDArray digamma(const Arg& x);      ///< The derivative of lgamma.
NDArray sigmoid(const Arg& x);      ///< 1 / (1 + exp(-x)).
NDArray softplus(const Arg& x);     ///< log(1 + exp(x)).
NDArray silu(const Arg& x);         ///< x * sigmoid(x).
NDArray gelu(const Arg& x);         ///< x * (1 + erf(x / sqrt(2))) / 2.
NDArray gelu_tanh(const Arg& x);    ///< gelu with the tanh approximation.
NDArray bitwise_not(const Arg& x);  ///< All bits inverted; for bool, logical not.
NDArray logical_not(const Arg& x);  ///< True if x is zero.
NDArray isnan(const Arg& x);        ///< True if x is NaN.
NDArray isinf(const Arg& x);        ///< True if x is infinite.
NDArray isfinite(const Arg& x);     ///< True if x is neither infinite nor NaN.
NDArray signbit(const Arg& x);      ///< True if the sign bit of x is set.

/// Returns the derivative of digamma of that order; order 0 is digamma.
NDArray polygamma(const Arg& x, IntArg order);

inline NDArray operator-(const Arg& x) { return neg(x); }
inline NDArray operator~(const Arg& x) { return bitwise_not(x); }
/// Takes an NDArray, not an Arg: with an Arg, the conversion of an array to bool would be an equally good
/// match, and the call ambiguous.
inline NDArray operator!(const NDArray& x) { return logical_not(x); }

}  // namespace mx
