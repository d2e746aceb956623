// Partial sorting and sorting by several keys: partition, lexsort; argpartition is in sorting.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>

#include "operators/operator.h"
#include "operators/sorting.h"

namespace mx {

/// Returns x partitioned along the axis, as numpy.partition: position `kth` holds the element that sorting
/// would put there, no element before it is larger, and no element after it is smaller. The other elements
/// are not sorted: those smaller than the element at `kth`, equal to it, and larger each keep their order.
/// NaN is last. A negative kth counts from the end. Throws InvalidArgument if kth is out of range.
NDArray partition(const Arg& x, IntArg kth, IntArg axis = -1);
/// Returns the indices along the axis that sort by the last key; elements that are equal in it are sorted by
/// the key before it, and so on, as numpy.lexsort. The keys have the same shape.
NDArray lexsort(std::span<const NDArray> keys, IntArg axis = -1,
                std::source_location where = std::source_location::current());
NDArray lexsort(std::initializer_list<NDArray> keys, IntArg axis = -1,
                std::source_location where = std::source_location::current());

}  // namespace mx
