// Selecting elements by a mask, on the CPU.
//
// Masks have dtype bool and the shape of the array that they apply to; strides of 0 broadcast them. "In
// order" means row-major order, whatever the strides. Large calls run on several threads; results do not
// depend on the number of threads. Targets must not overlap their inputs.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Returns the number of elements that are not zero; NaN counts. For a mask: the number of set elements. Any
/// dtype.
int64_t count_nonzero(const Tensor& source);

/// target (count_nonzero(source), rank) of i64: the indices of the elements that are not zero, in order.
void nonzero(const Tensor& target, const Tensor& source);

/// target (count_nonzero(mask),) = the elements of source where the mask is set, in order.
void masked_select(const Tensor& target, const Tensor& source, const Tensor& mask);

/// Writes the elements of source, in order, to the elements of target where the mask is set; the others keep
/// their values. source has any shape and may have more elements than are used.
void masked_scatter(const Tensor& target, const Tensor& mask, const Tensor& source);

/// target = value, converted as by fill(), where the mask is set.
void masked_fill(const Tensor& target, const Tensor& mask, double value);
void masked_fill(const Tensor& target, const Tensor& mask, int64_t value);

}  // namespace mx::kernels
