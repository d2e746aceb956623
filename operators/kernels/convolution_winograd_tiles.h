// The tiles of a convolution by Winograd's method, in blocks. Internal to the convolution kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/kernels/convolution_plan.h"

namespace mx::kernels {

/// Numbers of a transformed tile. Those of all tiles and planes (or rows) that have the same place in their
/// tile lie together, because they are an operand of one product of matrices.
inline constexpr int64_t kWinogradSize = 16;

/// The planes over which a result is a sum: those of all channels, and for each of them those that the taps
/// of the first axis read.
inline int64_t winograd_planes(const Correlation& c) { return c.channels * c.taps.count[0]; }

/// Returns at least `elements`: an odd number of cache lines, so that 16 parts of that size begin in
/// different cache sets.
inline int64_t odd_lines(int64_t elements) { return (divide_up(elements, 16) | 1) * 16; }

/// Where the weights of a plane begin, relative to those of their row.
inline int64_t weights_of_plane(const Correlation& c, int64_t plane) {
  const int64_t taps = c.taps.count[0];
  return plane / taps * c.weights.channel + plane % taps * c.weights.tap[0];
}

/// Which plane of an image a term of the sum reads, for the result at coordinate z of the first axis: that at
/// `offset` (the channel) from the image, at coordinate z * step + `depth` of the first axis.
struct ImagePlane {
  int64_t offset, depth;
};
std::vector<ImagePlane> image_planes(const Correlation& c);

/// Adjacent tiles of one row of tiles of an image.
struct TileRun {
  int64_t image;
  int64_t depth;  // of the results along the first axis
  int64_t y, x;   // of the first tile's first result
  int64_t count;  // tiles
  int64_t at;     // place of the first tile in the block
  bool follows;   // the run before it is directly above, and as long
};

/// All tiles, of 2 x 2 results each: row after row of plane after plane of image after image.
class WinogradTiles {
 public:
  explicit WinogradTiles(const Correlation& c)
      : across_(divide_up(c.out.size[2], 2)),
        down_(divide_up(c.out.size[1], 2)),
        depth_(c.out.size[0]),
        images_(c.images) {}

  int64_t count() const { return images_ * depth_ * down_ * across_; }
  int64_t across() const { return across_; }
  /// The tiles [begin, end), which are a block.
  std::vector<TileRun> runs(int64_t begin, int64_t end) const;

 private:
  int64_t across_, down_, depth_, images_;
};

/// The division of a correlation into tasks, which are parts of the rows of weights for a block of tiles.
struct WinogradPlan {
  int64_t block = 0, blocks = 0;  // tiles of a block
  int64_t row_parts = 1;
  int64_t depth = 0;          // planes of a step of the products
  int64_t weights_pitch = 0;  // elements of a row of transformed weights
  /// Elements of a row of transformed tiles, and of sums: a cache line more than the block, so that rows fall
  /// into different cache sets, and vectors may reach beyond the last tile.
  int64_t tiles_pitch = 0;

  WinogradPlan(const Correlation& c, int64_t lanes);
  int64_t tasks(int64_t groups) const { return blocks * groups * row_parts; }
  /// Elements of the transformed weights.
  int64_t weights(const Correlation& c) const { return c.groups * kWinogradSize * c.rows * weights_pitch; }
};

/// The same for the gradient of the weights. A task computes a part of the result, rows of planes, or the
/// sum over a chunk of the blocks for it.
struct WinogradWeightsPlan {
  int64_t block = 0, blocks = 0;            // tiles of a block
  int64_t chunks = 1, chunk_blocks = 0;     // blocks of a chunk
  int64_t rows = 0, row_parts = 1;          // rows of a part
  int64_t planes = 0, plane_parts = 1;      // planes of a part
  int64_t planes_pitch = 0;                 // elements of a tile's transformed planes
  int64_t tiles_pitch = 0;                  // elements of a row of transformed results
  int64_t sums_pitch = 0, sums_number = 0;  // elements of a row of sums, and of the sums of one number
  int64_t region = 0;                       // elements of the sums of a task

  WinogradWeightsPlan(const Correlation& c, int64_t lanes);
  int64_t parts(int64_t groups) const { return groups * row_parts * plane_parts; }
  struct Part {
    int64_t group = 0, row = 0, rows = 0, plane = 0, planes = 0;
  };
  Part part(int64_t index, const Correlation& c) const;
};

}  // namespace mx::kernels
