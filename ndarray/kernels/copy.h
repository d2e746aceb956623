// Copies and fills on the CPU: any types, any strides.
#pragma once

#include "ndarray/scalar.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// target[i] = source[i], converted like a C++ cast. To bool: true if not zero. From floating point to an
/// integer: truncated towards zero; values out of range become the nearest value in range and NaN becomes 0,
/// where C++ leaves the result undefined. Both have the same shape; the source may have strides of 0. The two
/// must not overlap, unless they are the same elements in the same order. Large copies run on several
/// threads.
void copy(const Tensor& target, const Tensor& source);

/// target[i] = value, as Scalar::to converts it.
void fill(const Tensor& target, const Scalar& value);

}  // namespace mx::kernels
