// Convolution kernels on the CPU: a correlation of images with patches of weights, which computes
// convolutions and their gradients with respect to the images, and the gradient with respect to the weights.
//
// An image has up to three spatial axes; shorter ones have leading axes of size 1. Sizes, strides and steps
// are arrays of three numbers: depth, height, width.
//
// Method: products of matrices whose rows are channels of the result and whose columns are positions of the
// result, as in im2col, but the matrix of patches is not written to memory. Each task copies the part of the
// image that it needs into a small buffer, in which the borders are zeros and the columns of one residue
// modulo the step are adjacent. In this buffer the row of the patch matrix for a channel and a tap is the
// buffer itself, moved by a constant, so that the register tile of gemm reads it through a table of offsets.
// Rows of the result that are too short for vectors are joined in a panel first. The method is described for
// im2col by Chellapilla et al., "High performance convolutional neural networks for document processing"
// (2006), and without im2col by Dukhan, "The indirect convolution algorithm" (2019).
//
// Arithmetic: f32 and f64 in their own type; f16 and bf16 in f32, rounded once. The order of each sum depends
// only on the shapes, so results have the same bits at any number of threads. Large convolutions of 3 x 3
// taps summed in f32 use Winograd's method (convolution_winograd.h), whose errors are of another kind.
//
// Thread-safety: any thread may call. The result must not overlap the operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ndarray/dtype.h"

namespace mx::kernels {

using Spatial = std::array<int64_t, 3>;

/// An operand: element (image n, channel c, position p) is at data + n * image + c * channel + p * space, in
/// elements. Channels of group g begin at g * group.
struct Images {
  void* data = nullptr;
  Spatial size{1, 1, 1};
  Spatial space{0, 0, 0};  ///< strides
  int64_t image = 0, group = 0, channel = 0;
};

/// The taps of a patch along each axis: tap t reads the image at first + t * gap, relative to the patch.
struct Taps {
  Spatial count{1, 1, 1};
  Spatial first{0, 0, 0};
  Spatial gap{1, 1, 1};
};

/// Weights: element (row r, channel c, tap t) of group g is at data + g * group + r * row + c * channel + t *
/// tap.
struct Weights {
  void* data = nullptr;
  int64_t group = 0, row = 0, channel = 0;
  Spatial tap{0, 0, 0};
};

/// Whether convolutions with 3 x 3 adjacent taps use Winograd's method (convolution_winograd.h).
enum class UseWinograd : uint8_t { never, if_faster, whenever_possible };

/// result[n, g, r, o] = bias[g, r] + sum over c, t of weights[g, r, c, t] * in[n, g, c, o * step + first + t
/// * gap]. Positions outside the image are 0. Without taps the result is the bias.
struct Correlation {
  DType dtype = DType::f32;
  int64_t images = 0, groups = 1, channels = 0, rows = 0;  ///< channels and rows of one group
  Images in, out;
  Weights weights;
  Taps taps;
  Spatial step{1, 1, 1};
  const void* bias = nullptr;  ///< null: no bias
  int64_t bias_stride = 1;
  UseWinograd winograd = UseWinograd::if_faster;
};

/// Returns false if every result is the bias.
inline bool has_terms(const Correlation& c) {
  return c.channels != 0 && c.taps.count[0] * c.taps.count[1] * c.taps.count[2] != 0;
}

/// Returns the bytes of memory that correlate() needs.
size_t correlate_scratch(const Correlation& c);
/// `scratch`: at least correlate_scratch(c) bytes, aligned to 64.
void correlate(const Correlation& c, void* scratch);

/// result[g, r, c, t] = sum over n, o of out[n, g, r, o] * in[n, g, c, o * step + first + t * gap], where
/// result is `weights`: the gradient of correlate() with respect to the weights, if `out` has the gradient
/// with respect to its result.
size_t correlate_weights_scratch(const Correlation& c);
void correlate_weights(const Correlation& c, void* scratch);

}  // namespace mx::kernels
