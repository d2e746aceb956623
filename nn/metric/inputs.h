// Preparation of the inputs of the metrics' kernels. Internal.
#pragma once

#include <source_location>
#include <string>

#include "ndarray/ndarray.h"

namespace mx::metric {

/// Returns the array on the CPU, with elements of `dtype`. The result is not recorded, so it keeps only its
/// memory alive, no graph of gradients. Throws InvalidArgument, naming `op` and `what`, if the array is a
/// symbol: a node of a graph, without values.
NDArray input_of(const NDArray& array, DType dtype, const char* op, const char* what,
                 std::source_location where);

/// Returns "f32 (3, 4) on virt(0)", for messages; "nothing" for an empty handle.
std::string describe(const NDArray& array);

}  // namespace mx::metric
