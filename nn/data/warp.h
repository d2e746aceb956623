// Resampling of one image plane under an affine map, bilinear.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::data {

/// Floats of scratch memory that warp_plane() needs.
inline int64_t warp_scratch(int64_t height, int64_t width) { return (height + 3) * (width + 3); }

/// The longest side and the largest plane, with its border: a float tells pixels apart, 32 bits hold places.
inline constexpr int64_t kMostWarpSide = int64_t{1} << 20, kMostWarpElements = int64_t{1} << 30;
/// The largest number in a matrix.
inline constexpr double kMostWarpEntry = 1e9;

/// target[y, x] = source[m[3] x + m[4] y + m[5], m[0] x + m[1] y + m[2]], interpolated between the four
/// pixels around that place; pixels beyond the edge are `fill`. `target` points to contiguous rows, `source`
/// is an f32 tensor (height, width) of any strides that must not overlap it, `matrix` six finite numbers of
/// at most kMostWarpEntry; the limits above hold.
///
/// A pixel's bits depend on the source and the matrix alone. Places are computed in float: they are right to
/// about 1e-7 of the larger side. A place that is a whole number gives that pixel exactly where its
/// neighbours are finite. Any thread may call.
void warp_plane(float* target, const Tensor& source, const double* matrix, float fill, float* scratch);

}  // namespace mx::data
