// The derivatives of the logarithm of the gamma function.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// The derivative of order + 1 of log(gamma(x)): digamma for the order 0, trigamma for 1. At 0, -1, -2, ...
/// digamma is NaN (at 0 an infinity against x's sign), the others are infinite for odd orders and NaN for
/// even ones. Within about 1e-14 of the result, relative to it or to 1; for an order n beyond 100 within n
/// times the rounding of x, which is as much as x itself determines. The time does not depend on the order.
double polygamma(int64_t order, double x);

/// out[i] = polygamma(order, in[i]). Same shape, any strides; out is of floating-point type; in any type. out
/// may be the same elements as in. Computed in f64 and rounded once; on several threads when large. Throws
/// InvalidArgument for different shapes, another type and a negative order.
void polygamma(const Tensor& out, const Tensor& in, int64_t order);

}  // namespace mx::kernels
