// Comparisons of elements with a number, for the kernels of every device. Internal.
#pragma once

#include "ndarray/scalar.h"
#include "operators/kernels/binary.h"

namespace mx::kernels {

/// A comparison of elements with a value of their own type.
struct Comparison {
  BinaryOp op;
  Scalar value;
};

/// Returns the comparison that is equivalent to "element op number", or "number op element" if `left`, for
/// elements of `dtype`. See binary_number() for what is equivalent.
Comparison comparison_with(BinaryOp op, const Scalar& number, DType dtype, bool left);

}  // namespace mx::kernels
