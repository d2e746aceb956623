// Copies and fills on the CPU: any types, any strides.
#pragma once

#include "ndarray/scalar.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// target[i] = source[i], converted as a C++ cast does (to bool: is it not zero; from floating point to an
/// integer: towards zero, and a defined value, that nearest in the range or 0 for NaN, where C++ has none).
/// Same shape; the source may have strides of 0. The two must not overlap, unless they are the same elements
/// in the same order. Runs on several threads when large.
void copy(const Tensor& target, const Tensor& source);

/// target[i] = value, as Scalar::to converts it.
void fill(const Tensor& target, const Scalar& value);

}  // namespace mx::kernels
