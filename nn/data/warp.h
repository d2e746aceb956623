// Bilinear resampling of one image plane under an affine map.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::data {

/// Returns the number of floats of scratch memory that warp_plane() needs.
inline int64_t warp_scratch(int64_t height, int64_t width) { return (height + 3) * (width + 3); }

/// The largest side, such that a float can represent every pixel position, and the largest plane with its
/// border, such that 32 bits hold every index.
inline constexpr int64_t kMostWarpSide = int64_t{1} << 20, kMostWarpElements = int64_t{1} << 30;
/// The largest number in a matrix.
inline constexpr double kMostWarpEntry = 1e9;

/// Sets target[y, x] = source[m[3] x + m[4] y + m[5], m[0] x + m[1] y + m[2]], where m is `matrix`,
/// interpolated between the four pixels around that position. Pixels beyond the edge have the value `fill`.
/// Preconditions: `target` points to contiguous rows; `source` is an f32 tensor (height, width) of any
/// strides that does not overlap `target`; `matrix` has six finite numbers of at most kMostWarpEntry; the
/// sizes are within the limits above.
///
/// The bits of a pixel depend only on the source and the matrix. Positions are computed in float, with an
/// error of about 1e-7 of the larger side. An integral position yields exactly that pixel if its neighbours
/// are finite. Any thread may call.
void warp_plane(float* target, const Tensor& source, const double* matrix, float fill, float* scratch);

}  // namespace mx::data
