// The division of a convolution of many small images into tasks. Internal to the convolution kernels.
#pragma once

#include <cstdint>

#include "operators/kernels/convolution_plan.h"

namespace mx::kernels {

struct LanesPlan {
  bool fits = false;   // false: plan_correlation() is better
  bool whole = false;  // no tap is ever outside of the images, so one product does all taps
  int64_t tile_rows = 1;
  int64_t depth = 1, steps = 1, k_pitch = 0;  // channels per step
  int64_t block_vectors = 1, image_blocks = 1;
  int64_t slivers = 1, block_slivers = 1, row_blocks = 1, block_rows = 1;
};

LanesPlan plan_lanes(const Correlation& c, int64_t lanes, int64_t tile_rows);

}  // namespace mx::kernels
