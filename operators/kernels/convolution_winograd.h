// Convolutions of 3 x 3 taps with fewer products than taps: the minimal filtering algorithm F(2 x 2, 3 x 3)
// of Winograd, as described by Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016).
// Internal to the convolution kernels.
//
// Method: a tile of 4 x 4 elements of a plane of an image gives 2 x 2 results. Tile and weights are
// transformed by additions to 16 numbers each, which are multiplied pairwise and summed over the channels,
// and the 16 sums are transformed to the results. These are 16 products per channel instead of 36. The
// products of all tiles of a block are 16 products of matrices.
//
// Arithmetic: f32; f16 and bf16 are rounded once. The error of a result is relative to the largest element
// that it reads times the largest weight, and not to each product of the two: if all large elements meet
// small weights, it is larger than that of a sum of products. Results of correlate() depend on no elements
// but those that they read. Those of correlate_weights() may be rounded differently by the other elements of
// a tile. Infinities would become NaN. So each function returns false if any result is not finite, and the
// caller computes all of them directly. A result can be finite although the parts of the direct sum overflow.
// The order of each sum depends only on the shapes.
//
// Thread-safety: any thread may call.
#pragma once

#include <cstddef>

#include "operators/kernels/convolution.h"

namespace mx::kernels {

/// Return whether correlate() and correlate_weights() use the method, as `c.winograd` asks. It needs 3 x 3
/// adjacent taps along the last two axes, steps of one element along these, and sums in f32.
bool uses_winograd(const Correlation& c);
bool uses_winograd_for_weights(const Correlation& c);

/// Precondition of all that follow: uses_winograd(c), or uses_winograd_for_weights(c).
size_t winograd_scratch(const Correlation& c);
size_t winograd_weights_scratch(const Correlation& c);

/// correlate() and correlate_weights(). Return false if a result is not finite; then all results are
/// undefined.
[[nodiscard]] bool correlate_winograd(const Correlation& c, void* scratch);
[[nodiscard]] bool correlate_weights_winograd(const Correlation& c, void* scratch);

}  // namespace mx::kernels
