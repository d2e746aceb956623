// The division of a correlation into tasks, and the layout of a task's copy of the image. Internal to the
// convolution kernels. Independent of the instruction set, except for the number of elements in a vector.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/kernels/convolution.h"

namespace mx::kernels {

inline int64_t product_of(const Spatial& s) { return s[0] * s[1] * s[2]; }
inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Divides n into equal parts of at most `most`, which are multiples of `unit` except for the last one.
/// Returns the size of a part, at least 1.
int64_t equal_part(int64_t n, int64_t most, int64_t unit = 1);

/// The division of the positions of all images into blocks.
struct PositionBlocks {
  int64_t block_images = 1, image_blocks = 1;
  Spatial block{1, 1, 1}, blocks{1, 1, 1};

  /// Blocks of about `columns` positions: parts of rows (multiples of `unit`), rows, planes or images.
  /// Precondition: no size is 0.
  PositionBlocks(int64_t images, const Spatial& out, int64_t columns, int64_t unit);
  int64_t count() const { return image_blocks * product_of(blocks); }
  /// Positions of one block at most.
  int64_t positions() const { return block_images * product_of(block); }

  struct Part {
    int64_t image = 0, images = 0;
    Spatial first{}, size{};
  };
  Part part(int64_t index, int64_t images, const Spatial& out) const;
};

/// The coordinates that the patch of position 0 reads along one axis: [low, low + reach).
struct PatchReach {
  Spatial low, reach;
  explicit PatchReach(const Taps& taps);
};

/// The layout of a part of an image in a task's buffer. An element at coordinate x relative to the block's
/// first coordinate is in the plane of its channel at row(x0, x1) + column(x2). Along the last axis the
/// coordinates with equal residues modulo the step are adjacent.
struct PatchBuffer {
  Spatial step, extent;          // extent: coordinates of a block
  std::vector<int64_t> slot;     // of each residue modulo step[2]; -1: no tap reads it
  std::vector<bool> used[2];     // the residues modulo step[0] and step[1] that taps read
  int64_t run = 0;               // elements of one residue in a row
  int64_t pitch = 0, plane = 0;  // elements of a row and of a channel
  int64_t row(int64_t d, int64_t h) const { return (d * extent[1] + h) * pitch; }
  int64_t column(int64_t w) const { return slot[static_cast<size_t>(w % step[2])] * run + w / step[2]; }

  PatchBuffer() = default;
  PatchBuffer(const Taps& taps, const PatchReach& patch, const Spatial& step, const Spatial& block);
};

struct CorrelationPlan {
  int64_t lanes = 1;      // elements in a vector
  int64_t tile_rows = 1;  // rows of a full tile
  PatchReach patch{Taps{}};
  int64_t taps = 1;

  int64_t depth = 1, steps = 1;  // channels per step, and steps over all channels
  int64_t k_pitch = 0;           // elements of a packed row of weights
  int64_t slivers = 1;           // the rows in tiles; rows_from(s) is the first row of sliver s
  // A block of results: positions of images, and slivers.
  PositionBlocks positions{1, {1, 1, 1}, 1, 1};
  int64_t block_slivers = 1, sliver_blocks = 1;

  bool in_place = false;  // the image is read where it is
  bool panel = false;     // rows of patches are joined in a panel
  PatchBuffer buffer;

  int64_t columns() const { return positions.positions() / positions.block[2] * padded_width(); }
  /// Columns of a row of results in the sums of a block.
  int64_t padded_width() const {
    return panel ? positions.block[2] : divide_up(positions.block[2], lanes) * lanes;
  }
  int64_t padded_columns() const { return divide_up(columns(), 2 * lanes) * 2 * lanes; }
  int64_t tasks(int64_t groups) const { return positions.count() * groups * sliver_blocks; }
};

/// Returns the share of the taps of all results along an axis that read an element of the image. Takes time
/// in proportion to their number.
double share_inside(const Correlation& c, size_t axis);

/// Merges the spatial axes of a correlation with one tap into one where that is possible.
Correlation merged(const Correlation& c);

/// `same_type`: the elements have the type of the sums.
CorrelationPlan plan_correlation(const Correlation& c, int64_t lanes, int64_t tile_rows, bool same_type);

}  // namespace mx::kernels
