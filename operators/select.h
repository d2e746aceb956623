// Choosing between values: where, clamp, lerp, masked_fill. Shapes broadcast, types are promoted as for
// arithmetic. All throw InvalidArgument for shapes that do not broadcast.
#pragma once

#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

/// a where the condition is not zero, b elsewhere. Both may be numbers: then the result is f32, i64 or bool.
/// Throws InvalidArgument for a number that the result's type cannot hold (fits() in ndarray/scalar.h).
NDArray where(const Arg& condition, const Operand& a, const Operand& b);

/// min(max(x, low), high): NaN if one of the three is, high where low > high. Numbers beyond an integer type
/// limit nothing on their own side (0 and 256 of u8); on the other side they throw InvalidArgument.
NDArray clamp(const Arg& x, const Operand& low, const Operand& high);
NDArray clamp_min(const Arg& x, const Operand& low);
NDArray clamp_max(const Arg& x, const Operand& high);
/// clamp by the name that NumPy gives it.
NDArray clip(const Arg& x, const Operand& low, const Operand& high);

/// a + weight * (b - a), and exactly b where the weight is 1.
NDArray lerp(const Arg& a, const NDArray& b, const Operand& weight);

/// x, with `value` where the mask (bool, broadcast to x) is set. x keeps its type: InvalidArgument for a
/// value of a higher category (1.5 for integers).
NDArray masked_fill(const Arg& x, const NDArray& mask, Scalar value);

namespace detail {
/// The record of where().
const Operator& where_operator();
}  // namespace detail

}  // namespace mx
