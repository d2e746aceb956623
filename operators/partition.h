// Orders that are partly or jointly given: partition, argpartition, lexsort.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>

#include "operators/operator.h"

namespace mx {

/// Along the axis: the element that sorting would put at place `kth`, none larger before it and none smaller
/// behind it; as numpy.partition. Here the others are in order too, which NumPy leaves open. NaN is last.
/// kth counts from the end if it is negative. Throws InvalidArgument for a kth that is not on the axis.
NDArray partition(const Arg& x, int64_t kth, int64_t axis = -1);
/// The indices along the axis that partition() would select: x taken at them is partition(x, kth, axis).
NDArray argpartition(const Arg& x, int64_t kth, int64_t axis = -1);
/// The indices along the axis that sort by the last key, among its equals by the one before it, and so on;
/// as numpy.lexsort. The keys have one shape.
NDArray lexsort(std::span<const NDArray> keys, int64_t axis = -1,
                std::source_location where = std::source_location::current());
NDArray lexsort(std::initializer_list<NDArray> keys, int64_t axis = -1,
                std::source_location where = std::source_location::current());

}  // namespace mx
