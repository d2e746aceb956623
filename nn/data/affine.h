// Affine maps of images: random ones, one for each sample, and resampling under given ones. Operators: they
// return at once, and run in the engine.
#pragma once

#include <cstdint>
#include <span>

#include "operators/operator.h"

namespace mx::data {

/// One step of a random map. Values are uniform in [low, high].
struct AffineStep {
  enum class Kind : int64_t {
    shift,   ///< the content moves right and down by two values, in pixels
    rotate,  ///< by degrees about the image's centre, counter-clockwise as one sees it
    scale,   ///< the content grows by a factor about the centre
    flip,    ///< mirrored left to right with probability `high`
  };
  Kind kind = Kind::shift;
  double low = 0, high = 0;
};

/// For each sample the map that applies the steps in their order, as warp_affine() wants it: f64 (n, 2, 3),
/// from a place of the result to the place of the source. `indices` are the samples' numbers, i64 (n,); what
/// a sample gets is a function of its number, `key` (sample_random.h) and the steps: step i draws from source
/// `first_source + i`. Throws InvalidArgument for limits that make no sense.
NDArray random_affine(const NDArray& indices, uint64_t key, uint32_t first_source,
                      std::span<const AffineStep> steps, int64_t height, int64_t width);

/// Images (n, .., height, width), converted to f32, resampled bilinearly: pixel (x, y) of sample i is what
/// the source has at
///   (m[0][0] x + m[0][1] y + m[0][2], m[1][0] x + m[1][1] y + m[1][2]),  m = matrices[i],
/// where pixel (0, 0) is the first one's centre; beyond the edge is `fill`. Matrices f64 (n, 2, 3); their
/// numbers must be finite and at most 1e9, which is found when the operation runs.
NDArray warp_affine(const Arg& images, const NDArray& matrices, double fill = 0);

}  // namespace mx::data
