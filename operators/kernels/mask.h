// Choosing elements by a mask, on the CPU.
//
// Masks are of dtype bool and have the shape of what they choose from; strides of 0 broadcast them. "In
// order" is row-major order, whatever the strides. Large calls run on several threads; results do not depend
// on them. Targets must not overlap their inputs.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// How many elements are not zero (NaN is not); for a mask: how many are set. Any dtype.
int64_t count_nonzero(const Tensor& source);

/// target (count_nonzero(source), rank) of i64: the indices of those elements, in order.
void nonzero(const Tensor& target, const Tensor& source);

/// target (count_nonzero(mask),) = the elements of source where the mask is set, in order.
void masked_select(const Tensor& target, const Tensor& source, const Tensor& mask);

/// target = the elements of source in order, where the mask is set; the others stay. source, of any shape,
/// may have more elements than are used.
void masked_scatter(const Tensor& target, const Tensor& mask, const Tensor& source);

/// target = value where the mask is set, converted as by fill().
void masked_fill(const Tensor& target, const Tensor& mask, double value);
void masked_fill(const Tensor& target, const Tensor& mask, int64_t value);

}  // namespace mx::kernels
