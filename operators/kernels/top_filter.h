// Finds the elements that may belong to the first k of a sorted order: the vectorised scan of topk. Internal.
#pragma once

#include <cstdint>

#include "operators/kernels/sort_key.h"

namespace mx::kernels {

/// Elements that one call scans at most.
inline constexpr int64_t kFilterElements = 1024;

/// Writes the positions of those of n <= kFilterElements elements at `x` whose key may be below `limit`, a
/// key of key_of(element, descending), in ascending order. Returns their number. Elements whose key is not
/// below the limit may be among them only if they are 0 or NaN. `found` has room for kFilterElements.
template <class T>
int64_t filter_top(const T* x, int64_t n, BitsOf<T> limit, bool descending, uint16_t* found);

}  // namespace mx::kernels
