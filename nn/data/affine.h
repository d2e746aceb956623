// Affine maps of images: random_affine() draws a map for each sample, warp_affine() resamples images under
// given maps. Both are operators: they return at once and run in the engine.
#pragma once

#include <cstdint>
#include <span>

#include "operators/operator.h"

namespace mx::data {

/// One step of a random map. Values are uniform in [low, high].
struct AffineStep {
  enum class Kind : int64_t {
    shift,   ///< moves the content right and down by two values, in pixels
    rotate,  ///< rotates by degrees about the image's centre, counter-clockwise as displayed
    scale,   ///< scales the content by a factor about the centre
    flip,    ///< mirrors left to right with probability `high`
  };
  Kind kind = Kind::shift;
  double low = 0, high = 0;
};

/// Returns, for each sample, the map that applies the steps in order, in the form that warp_affine() takes:
/// f64 (n, 2, 3), from places of the result to places of the source. `indices` are the samples' numbers, i64
/// (n,). A sample's map is a function of its number, `key` (sample_random.h) and the steps only; step i draws
/// from source `first_source + i`. Throws InvalidArgument for invalid limits.
NDArray random_affine(const NDArray& indices, uint64_t key, uint32_t first_source,
                      std::span<const AffineStep> steps, int64_t height, int64_t width);

/// Resamples images (n, .., height, width), converted to f32, bilinearly. Pixel (x, y) of sample i gets the
/// value of the source at
///   (m[0][0] x + m[0][1] y + m[0][2], m[1][0] x + m[1][1] y + m[1][2]),  m = matrices[i].
/// (0, 0) is the centre of the first pixel. Pixels beyond the edge have the value `fill`. `matrices` is f64
/// (n, 2, 3); its numbers must be finite and at most 1e9, which is checked when the operation runs.
NDArray warp_affine(const Arg& images, const NDArray& matrices, double fill = 0);

}  // namespace mx::data
