// Products and distances of vectors, matrices and arrays, made of matmul and elementwise operators. Types are
// promoted as there; gradients follow. All throw InvalidArgument for shapes that do not fit, with both.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

/// The sums of products over the last dimension of both, as numpy.inner: (.., k) and (.., k) give a's and b's
/// other dimensions, in this order. A number multiplies.
NDArray inner(const Arg& a, const NDArray& b);
/// The sums of products over the last `axes` dimensions of a and the first `axes` of b, as numpy.tensordot.
NDArray tensordot(const Arg& a, const NDArray& b, int64_t axes = 2);
/// Over the dimensions axes_a of a, each with the one of b in the same place of axes_b.
NDArray tensordot(const Arg& a, const NDArray& b, const Shape& axes_a, const Shape& axes_b);
/// Blocks b times each element of a, as numpy.kron; up to rank 6.
NDArray kron(const Arg& a, const NDArray& b);
/// The vector product of vectors of 3 along `axis`; the other dimensions broadcast.
NDArray cross(const Arg& a, const NDArray& b, int64_t axis = -1);
/// The sum of a diagonal, as numpy.trace; of integers and bool i64.
NDArray trace(const Arg& x, int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1);
/// The distances of all pairs of rows, as torch.cdist: a (.., m, k) and b (.., n, k) give (.., m, n). The
/// differences are taken before they are squared, so that near rows have exact distances; memory for them is
/// bounded by taking some rows of a at a time. The gradient of a distance of 0 is 0.
NDArray cdist(const Arg& a, const NDArray& b, double p = 2);

}  // namespace mx
