// Distances of all pairs of rows, for cdist(). Internal.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx::detail {

/// The distances of order p >= 0 of the rows of a (.., m, k) and b (.., n, k), of one floating-point type:
/// (.., m, n).
NDArray row_distances(const Arg& a, const NDArray& b, double p);

/// Returns the shape (.., m, n) of the distances of rows (.., m, k) and (.., n, k), whose leading dimensions
/// broadcast. Throws InvalidArgument, naming `op`, if there is none.
Shape distance_shape(const Shape& a, const Shape& b, const char* op);

/// Returns how many rows of a result (.., m, n) may be computed at a time if the differences of all
/// coordinates are in memory at once.
int64_t distance_rows(const Shape& result, int64_t coordinates);

}  // namespace mx::detail
