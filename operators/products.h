// Products and distances of vectors, matrices and arrays. They call matmul and elementwise operators, which
// define type promotion and gradients. All throw InvalidArgument for shapes that do not fit; the message
// names both.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

/// The sums of products over the last dimension of both, as numpy.inner: for a (.., k) and b (.., k) the
/// result has the other dimensions of a, then those of b. If one operand has rank 0, it multiplies the other
/// one.
NDArray inner(const Arg& a, const NDArray& b);
/// The sums of products over the last `axes` dimensions of a and the first `axes` of b, as numpy.tensordot.
NDArray tensordot(const Arg& a, const NDArray& b, IntArg axes = 2);
/// The same over the dimensions axes_a of a; each is paired with the dimension of b at its position in
/// axes_b.
NDArray tensordot(const Arg& a, const NDArray& b, const Shape& axes_a, const Shape& axes_b);
/// The Kronecker product, as numpy.kron: each element of a is replaced by its product with b; up to rank 6.
NDArray kron(const Arg& a, const NDArray& b);
/// The cross product of vectors of 3 elements along `axis`; the other dimensions broadcast.
NDArray cross(const Arg& a, const NDArray& b, IntArg axis = -1);
/// The sum of a diagonal, as numpy.trace; i64 for integers and bool.
NDArray trace(const Arg& x, IntArg offset = 0, IntArg axis1 = 0, IntArg axis2 = 1);
/// The distances of all pairs of rows, as torch.cdist: a (.., m, k) and b (.., n, k) give (.., m, n). The
/// differences themselves are squared, so distances of close rows do not suffer from cancellation, as those
/// of |a|^2 + |b|^2 - 2ab do. Kernels compute the distances of floating-point numbers and their gradients
/// without an array of the differences. For integers, and for gradients of gradients, the differences are in
/// memory, for some rows of a at a time; if the gradient of the gradient is recorded, all of them stay. The
/// gradient of a distance of 0 is 0.
NDArray cdist(const Arg& a, const NDArray& b, double p = 2);

}  // namespace mx
