// The largest elements of windows of 2 x 2 that do not overlap, the usual pooling of images. Internal.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// One row of windows: window o has the columns 2 * o and 2 * o + 1 of two adjacent rows of `width`
/// contiguous elements, of which `upper` is the first. Writes `count` values to y, and to indices their
/// positions in the plane, in which `upper` has the position `first`. Of equal elements the first counts, of
/// several NaNs the last one. Precondition: positions are below 2^31. Any thread may call.
void max_pool_pairs(const float* upper, int64_t width, int64_t first, int64_t count, float* y,
                    int64_t* indices);

}  // namespace mx::kernels::detail
