// Resampling of images: interpolation to other sizes, and channels as pixels.
//
// x is (images, channels, spatial...). The functions are differentiable any number of times. They throw
// InvalidArgument for types that are not floating point, for sizes and factors that do not fit, and for modes
// that the number of spatial axes does not have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operators/operator.h"
#include "operators/per_axis.h"

namespace mx {

struct InterpolateOptions {
  std::optional<PerAxis> size = {};       ///< spatial sizes of the result; either these or factors
  std::vector<double> scale_factor = {};  ///< one factor, or one for each axis; sizes are rounded down
  /// "nearest", "nearest-exact" (nearest centre), "linear" (1 axis), "bilinear" and "bicubic" (2 axes),
  /// "trilinear" (3 axes).
  std::string mode = "nearest";
  /// true: the centres of the first and of the last elements coincide; false: the outer edges do. Not for the
  /// nearest modes.
  bool align_corners = false;
};

/// As torch.nn.functional.interpolate without antialiasing. f16 and bf16 are computed in f32 and rounded
/// once. The terms of sums have a fixed order, so results and gradients have the same bits at any number of
/// threads.
NDArray interpolate(const Arg& x, const InterpolateOptions& options);

/// (images, channels r^2, height, width) to (images, channels, height r, width r), and back.
NDArray pixel_shuffle(const Arg& x, IntArg factor);
NDArray pixel_unshuffle(const Arg& x, IntArg factor);

}  // namespace mx
