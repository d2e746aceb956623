// The derivatives of the logarithm of the gamma function.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Returns the derivative of order `order` + 1 of log(gamma(x)): digamma for order 0, trigamma for order 1.
/// At 0, -1, -2, ... digamma is NaN (at 0 it is an infinity of the sign opposite to x's); the others are
/// infinite for odd orders and NaN for even ones. The error is about 1e-14, relative to the larger of the
/// result and 1; for an order n beyond 100 it is within n times the rounding error of x, which no algorithm
/// can avoid. The time does not depend on the order.
double polygamma(int64_t order, double x);

/// out[i] = polygamma(order, in[i]). Same shape, any strides; out has a floating-point type, in any type. out
/// may be the same elements as in. Computed in f64 and rounded once; runs on several threads if large. Throws
/// InvalidArgument for different shapes, another type and a negative order.
void polygamma(const Tensor& out, const Tensor& in, int64_t order);

}  // namespace mx::kernels
