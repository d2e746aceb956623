// Copies between arrays, with conversion, broadcasting and transfer between devices. Used by NDArray's
// members and by operators.
#pragma once

#include <source_location>

#include "ndarray/ndarray.h"

namespace mx::detail {

/// Performs target[...] = source: broadcasts, converts, and copies to the target's device. If the two
/// overlap, the result is as if the source had been copied first. Recorded if one of them is recorded. Throws
/// InvalidArgument, naming `op`, if the source does not broadcast to the target's shape or the target repeats
/// elements. Throws InvalidState if a recorded target may not be changed.
void assign(ArrayImpl& target, ArrayImpl& source, const char* op, std::source_location where);

/// Returns a new contiguous array of that type on that device with the same elements. Not recorded.
NDArray copy_to(ArrayImpl& source, DType dtype, Context context, std::source_location where);

/// Returns a new contiguous array whose elements are not initialised.
Ref<ArrayImpl> new_array(const Shape& shape, DType dtype, Context context, const char* op);

}  // namespace mx::detail
