// Results of functions of users (checkpoint(), Function) as arrays of their own memory. Internal.
#pragma once

#include <cstdint>
#include <span>

#include "ndarray/ndarray.h"

namespace mx::detail {

/// Returns the values of `result`, which a function of a user has returned, as a new array without a node.
/// The array is the only one that shows its memory, as far as can be known: a copy is made if the memory
/// existed at `begin` (Storage::new_moment(), before the function was called), if one of the results `before`
/// has it, if it has further elements, or if elements of the result share memory. Otherwise a change in place
/// of one array would change the values of another without its graph, and as_strided() would find elements
/// that have no gradient.
NDArray own_memory(const NDArray& result, uint64_t begin, std::span<const NDArray> before);

}  // namespace mx::detail
