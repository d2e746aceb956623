// Whether one array has all elements of another. Internal.
#pragma once

#include "ndarray/detail/array_impl.h"

namespace mx::detail {

/// Returns true if each element of `view` is an element of `array`. Precondition: both have one storage and
/// one type. May return false although it is so: for an array whose elements share memory, and for a view
/// with a stride that is not a multiple of one of the array's strides.
bool contains(const ArrayImpl& array, const ArrayImpl& view);

}  // namespace mx::detail
