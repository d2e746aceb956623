// The largest elements of windows of 2 x 2 that do not overlap, the usual pooling of images. Internal.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// Computes `rows` rows of `count` windows in one plane: window o of row r has the columns 2 * o and 2 * o +
/// 1 of the rows 2 * r and 2 * r + 1 of x, whose rows are `width` elements apart. Writes the largest elements
/// to y and their positions in the plane to indices. Of equal elements the first counts, of several NaNs the
/// last one. Precondition: positions are below 2^31. Any thread may call.
void max_pool_pairs(const float* x, int64_t width, int64_t rows, int64_t count, float* y, int64_t* indices);

/// The gradient: dx (height, width) with dy at `indices` and zeros elsewhere, for height / 2 rows of width /
/// 2 windows. Returns false, with dx in any state, if an index is not one of its window's four positions, or
/// if a row is shorter than the smallest vector. Precondition: positions are below 2^31. Any thread may call.
bool max_pool_pairs_backward(const float* dy, const int64_t* indices, int64_t width, int64_t height,
                             float* dx);

}  // namespace mx::kernels::detail
