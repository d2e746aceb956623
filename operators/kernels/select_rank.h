// Selection on the CPU: the elements that sorting would put at given places, in a time that grows with the
// number of elements, not with that of comparisons.
//
// The order is that of sort.h: numeric, NaN last, -0 equal to 0, stable. So only one result is correct, and
// it does not depend on the number of threads. Any dtype, any strides. Targets must not overlap their inputs.
// Thread-safety: any thread may call.
//
// Radix selection: a histogram of the upper bits of the keys (sort_keys.h) tells which bucket has the element
// of a place. Only the elements of that bucket are looked at again, with the next bits. Several places share
// the passes.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// target = the indices along the last axis of the elements that sorting would put at `places`: argsort taken
/// at the places. The places (i64, source's shape with any size of the last axis) may have strides of 0. The
/// target is i64 of their shape. Throws InvalidArgument for a place that is not in [0, source.shape.back()).
void argselect(const Tensor& target, const Tensor& source, const Tensor& places);

/// target (i64, source's shape) = the indices along `axis` that divide the elements: first those smaller than
/// the one that sorting would put at place `kth`, then those equal to it, then the larger ones. Within each
/// of the three parts the elements keep their order. Precondition: kth is in [0, source.shape[axis]).
void argpartition(const Tensor& target, const Tensor& source, int64_t axis, int64_t kth);

}  // namespace mx::kernels
