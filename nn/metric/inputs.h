// What the metrics' kernels are given. Internal.
#pragma once

#include <source_location>
#include <string>

#include "ndarray/ndarray.h"

namespace mx::metric {

/// The array on the CPU, with elements of `dtype`. The tape knows nothing of it, and it keeps nothing alive
/// but its memory. Throws InvalidArgument, naming `op` and `what`, for an array that stands for a node of a
/// graph.
NDArray input_of(const NDArray& array, DType dtype, const char* op, const char* what,
                 std::source_location where);

/// "f32 (3, 4) on virt(0)" for messages; "nothing" for an empty handle.
std::string describe(const NDArray& array);

}  // namespace mx::metric
