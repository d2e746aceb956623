// Copies between arrays: types, shapes, devices. Used by NDArray's members and by operators.
#pragma once

#include <source_location>

#include "ndarray/ndarray.h"

namespace mx::detail {

/// target[...] = source, broadcast, converted and carried to target's device; overlapping memory counts as
/// copied first. Recorded where one of them is. Throws InvalidArgument, naming `op`, when the shape does not
/// broadcast to the target's or the target repeats elements, and InvalidState when a recorded target may not
/// be changed.
void assign(ArrayImpl& target, ArrayImpl& source, const char* op, std::source_location where);

/// A contiguous array of that type on that device with the same elements; always new, not recorded.
NDArray copy_to(ArrayImpl& source, DType dtype, Context context, std::source_location where);

/// A contiguous array without a value.
Ref<ArrayImpl> new_array(const Shape& shape, DType dtype, Context context, const char* op);

}  // namespace mx::detail
