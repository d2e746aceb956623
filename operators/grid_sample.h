// Samples images at given positions: the resampling of a spatial transformer.
//
//   NDArray grid = affine_grid(theta, {2, 3, 32, 32});        // theta (2, 2, 3)
//   NDArray y = grid_sample(images, grid);                    // (2, 3, 32, 32)
//
// Composed of other operators, so both are differentiable any number of times. Errors are InvalidArgument.
#pragma once

#include <string>

#include "operators/operator.h"

namespace mx {

struct GridSampleOptions {
  std::string mode = "bilinear";  ///< or "nearest", where ties go to the even pixel
  std::string padding_mode =
      "zeros";  ///< or "border": a position outside reads the nearest pixel of the edge
  /// true: -1 and 1 are the centres of the first and of the last pixel; false: their outer edges.
  bool align_corners = false;
};

/// As torch.nn.functional.grid_sample. x is (images, channels, height, width), and grid is (images, rows,
/// columns, 2): for each pixel of the result (images, channels, rows, columns) the position in x, first along
/// the width and then along the height, from -1 to 1. NaN counts as -1. Reads of x are gathered for each of
/// the four neighbours, so the call takes the memory of about five results, and recording keeps it.
NDArray grid_sample(const Arg& x, const NDArray& grid, const GridSampleOptions& options = {});

/// As torch.nn.functional.affine_grid: the grid (images, rows, columns, 2) of the maps theta (images, 2, 3)
/// of the positions of a result of shape `size`, (images, channels, rows, columns).
NDArray affine_grid(const Arg& theta, const Shape& size, bool align_corners = false);

}  // namespace mx
