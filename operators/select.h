// Selection between values: where, clamp, lerp, masked_fill. Shapes broadcast, types are promoted as for
// arithmetic. All throw InvalidArgument for shapes that do not broadcast.
#pragma once

#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

/// Returns a where the condition is not zero, b elsewhere. If both are numbers, the result is f32, i64 or
/// bool. Throws InvalidArgument for a number that the result's type cannot hold (fits() in ndarray/scalar.h).
NDArray where(const Arg& condition, const Operand& a, const Operand& b);

/// Returns min(max(x, low), high): NaN if one of the three is NaN, and high where low > high. For integers, a
/// number `low` below the range of the type or `high` above it has no effect: clamp(x, 0, 256) of u8 is x. A
/// number beyond the other end of the range throws InvalidArgument.
NDArray clamp(const Arg& x, const Operand& low, const Operand& high);
NDArray clamp_min(const Arg& x, const Operand& low);
NDArray clamp_max(const Arg& x, const Operand& high);
/// The same as clamp, with NumPy's name.
NDArray clip(const Arg& x, const Operand& low, const Operand& high);

/// Returns a + weight * (b - a), and exactly b where the weight is 1.
NDArray lerp(const Arg& a, const NDArray& b, const Operand& weight);

/// Returns x with `value` where the mask is true; the mask is bool and broadcasts to x. The result has x's
/// type: throws InvalidArgument for a value of a higher category (1.5 for integers).
NDArray masked_fill(const Arg& x, const NDArray& mask, Scalar value);

namespace detail {
/// Returns the record of where().
const Operator& where_operator();
}  // namespace detail

}  // namespace mx
