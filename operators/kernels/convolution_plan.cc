#include "operators/kernels/convolution_plan.h"

#include <algorithm>
#include <cmath>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/convolution_lanes.h"

namespace mx::kernels {
namespace {

// The depth of a product of tiles: a sliver of weights of this depth stays in the first-level cache.
constexpr int64_t kDepth = 320;
// Columns of a block: the block's copy of the image and its sums stay in the second-level cache.
constexpr int64_t kColumns = 1024, kPanelColumns = 512, kMinColumns = 128;
// Elements of a task's copy of the image, and of its sums.
constexpr int64_t kBufferElements = 128 << 10, kSumElements = 128 << 10;
// Multiplications: below the first, one thread is faster than two; a task should have at least the second.
constexpr double kConvolutionParallelWork = 4e6, kTaskWork = 1e6;

double work_of(const Correlation& c) {
  return static_cast<double>(c.images) * static_cast<double>(product_of(c.out.size)) *
         static_cast<double>(c.groups * c.rows) * static_cast<double>(c.channels * product_of(c.taps.count));
}

/// Divides images and positions into blocks of about `columns` columns.
void divide_columns(const Correlation& c, int64_t columns, CorrelationPlan& p) {
  p.positions = PositionBlocks(c.images, c.out.size, columns, p.lanes);
  p.buffer = PatchBuffer(c.taps, p.patch, c.step, p.positions.block);
}

}  // namespace

int64_t equal_part(int64_t n, int64_t most, int64_t unit) {
  if (n <= most) return std::max<int64_t>(n, 1);
  const int64_t parts = divide_up(n, std::max<int64_t>(most, 1));
  return divide_up(divide_up(n, parts), unit) * unit;
}

PositionBlocks::PositionBlocks(int64_t images, const Spatial& out, int64_t columns, int64_t unit) {
  block[2] = equal_part(out[2], std::max(columns, unit), unit);
  const bool row = block[2] == out[2];
  block[1] = row ? equal_part(out[1], columns / out[2]) : 1;
  const bool plane = row && block[1] == out[1];
  block[0] = plane ? equal_part(out[0], columns / (out[1] * out[2])) : 1;
  const bool image = plane && block[0] == out[0];
  block_images = image ? equal_part(images, columns / product_of(out)) : 1;
  for (size_t a = 0; a < 3; ++a) blocks[a] = divide_up(out[a], block[a]);
  image_blocks = divide_up(images, block_images);
}

PositionBlocks::Part PositionBlocks::part(int64_t index, int64_t images, const Spatial& out) const {
  Part p;
  for (size_t a = 3; a-- > 0;) {
    p.first[a] = index % blocks[a] * block[a];
    p.size[a] = std::min(block[a], out[a] - p.first[a]);
    index /= blocks[a];
  }
  p.image = index * block_images;
  p.images = std::min(block_images, images - p.image);
  return p;
}

PatchReach::PatchReach(const Taps& taps) {
  for (size_t a = 0; a < 3; ++a) {
    const int64_t last = taps.first[a] + (taps.count[a] - 1) * taps.gap[a];
    low[a] = std::min(taps.first[a], last);
    reach[a] = std::max(taps.first[a], last) - low[a] + 1;
  }
}

PatchBuffer::PatchBuffer(const Taps& taps, const PatchReach& patch, const Spatial& the_step,
                         const Spatial& block)
    : step(the_step) {
  for (size_t a = 0; a < 3; ++a) {
    extent[a] = (block[a] - 1) * step[a] + patch.reach[a];
    std::vector<bool> residues(static_cast<size_t>(step[a]));
    for (int64_t t = 0; t < std::min(taps.count[a], step[a]); ++t)
      residues[static_cast<size_t>((taps.first[a] + t * taps.gap[a] - patch.low[a]) % step[a])] = true;
    if (a < 2) {
      used[a] = residues;
      continue;
    }
    int64_t slots = 0;
    for (const bool is_used : residues) slot.push_back(is_used ? slots++ : -1);
    run = divide_up(extent[2], step[2]);
    pitch = slots * run;
  }
  // An odd number of runs of 16 elements, so that the planes fall into different cache sets. A run is a cache
  // line of f32, and two of f64.
  plane = (extent[0] * extent[1] * pitch + 15) / 16 * 16;
  if (plane % 32 == 0) plane += 16;
}

double share_inside(const Correlation& c, size_t axis) {
  int64_t count = 0;
  for (int64_t o = 0; o < c.out.size[axis]; ++o)
    for (int64_t t = 0; t < c.taps.count[axis]; ++t) {
      const int64_t x = o * c.step[axis] + c.taps.first[axis] + t * c.taps.gap[axis];
      count += x >= 0 && x < c.in.size[axis];
    }
  return static_cast<double>(count) / static_cast<double>(c.out.size[axis] * c.taps.count[axis]);
}

Correlation merged(const Correlation& c) {
  Correlation m = c;
  for (size_t a = 0; a < 3; ++a)
    if (c.taps.count[a] != 1 || c.taps.first[a] != 0 || c.step[a] != 1 || c.in.size[a] != c.out.size[a])
      return m;
  for (size_t a = 2; a > 0; --a) {
    for (const Images* i : {&c.in, &c.out})
      if (i->size[a - 1] != 1 && i->space[a - 1] != i->size[a] * i->space[a]) return m;
    const int64_t together = m.in.size[a - 1] * m.in.size[2];
    m.in.size[2] = m.out.size[2] = together;
    m.in.size[a - 1] = m.out.size[a - 1] = 1;
  }
  return m;
}

CorrelationPlan plan_correlation(const Correlation& c, int64_t lanes, int64_t tile_rows, bool same_type) {
  CorrelationPlan p;
  p.lanes = lanes;
  p.tile_rows = tile_rows;
  p.patch = PatchReach(c.taps);
  p.taps = product_of(c.taps.count);
  p.depth = equal_part(c.channels, std::max<int64_t>(1, kDepth / p.taps));
  p.steps = divide_up(c.channels, p.depth);
  p.k_pitch = (p.depth * p.taps + 15) / 16 * 16 + 16;
  p.slivers = divide_up(c.rows, tile_rows);

  // The costs per row of a patch and pair of vectors, in multiply-adds of vectors.
  const int64_t width = c.out.size[2];
  const double rows = static_cast<double>(2 * c.rows);
  const double direct =
      rows * static_cast<double>(divide_up(width, lanes) * lanes) / static_cast<double>(width);
  const double joined =
      rows + 6 + 2 * static_cast<double>(2 * lanes) / static_cast<double>(std::min(width, 2 * lanes));
  bool inside = same_type && c.step[2] == 1 && c.in.space[2] == 1;
  for (size_t a = 0; a < 3; ++a)
    inside = inside && p.patch.low[a] >= 0 &&
             p.patch.low[a] + (c.out.size[a] - 1) * c.step[a] + p.patch.reach[a] <= c.in.size[a];
  p.panel = joined < direct || (inside && p.taps == 1 && c.rows > 2 * tile_rows);
  p.in_place = inside && (p.panel || (width % lanes == 0 && c.rows <= 2 * tile_rows));

  const int64_t row_limit = std::max<int64_t>(1, kSumElements / kPanelColumns / tile_rows);
  p.block_slivers = std::min(p.slivers, row_limit);
  int64_t columns = p.panel ? kPanelColumns : kColumns;
  divide_columns(c, columns, p);
  while (columns > kMinColumns && !p.in_place &&
         p.buffer.plane * p.depth * p.positions.block_images > kBufferElements)
    divide_columns(c, columns /= 2, p);
  const double work = work_of(c);
  const int threads = parallel_width();
  const double wanted = work < kConvolutionParallelWork
                            ? 1
                            : std::min<double>(threads <= 2 ? threads : 2 * threads, work / kTaskWork);
  while (true) {
    p.sliver_blocks = divide_up(p.slivers, p.block_slivers);
    if (static_cast<double>(p.tasks(c.groups)) >= wanted) break;
    if (columns > kMinColumns && p.columns() > kMinColumns && (columns > 512 || p.block_slivers <= 4)) {
      divide_columns(c, columns /= 2, p);
    } else if (p.block_slivers > 1) {
      p.block_slivers = divide_up(p.block_slivers, 2);
    } else {
      break;
    }
  }
  return p;
}

LanesPlan plan_lanes(const Correlation& c, int64_t lanes, int64_t tile_rows) {
  constexpr int64_t kMostPositions = 256, kMostPadded = 100, kMostDepth = 256, kLeastDepth = 32;
  constexpr int64_t kLeastRows = 4, kLeastProducts = 96;  // of an element of the image
  LanesPlan p;
  p.tile_rows = tile_rows;
  const int64_t in = product_of(c.in.size), out = product_of(c.out.size), taps = product_of(c.taps.count);
  if (c.images < lanes || in > kMostPositions || out > kMostPositions) return p;
  // The share of products that are not with padding, and of lanes that hold images.
  double share = static_cast<double>(c.images) / static_cast<double>(divide_up(c.images, lanes) * lanes);
  double inside = 1;
  for (size_t a = 0; a < 3; ++a) inside *= share_inside(c, a);
  p.whole = inside == 1;
  // Rows of results that are too short for vectors cost time when they are joined, which is paid back only by
  // many rows of weights.
  const bool short_rows = c.out.size[2] % lanes != 0 && c.rows <= 4 * tile_rows && taps > 1;
  // Images are copied in and results out, which costs about as much as ten products of each element. More
  // positions must leave out more taps, because their sums leave the first-level cache.
  const bool enough = c.rows >= tile_rows || (c.rows >= kLeastRows && c.rows * taps >= kLeastProducts);
  const double most_inside = std::max(in, out) <= kMostPadded ? 0.92 : 0.75;
  p.fits = p.whole ? short_rows && share > 0.9 && c.rows >= tile_rows
                   : enough && inside < most_inside * share && c.channels * c.taps.count[2] >= kLeastDepth;
  if (!p.fits) return p;
  const int64_t vectors = divide_up(c.images, lanes);
  p.block_vectors = equal_part(vectors, std::max<int64_t>(1, kPanelColumns / (out * lanes)));
  p.image_blocks = divide_up(vectors, p.block_vectors);
  const int64_t most = kBufferElements / (in * p.block_vectors * lanes);
  p.depth = equal_part(c.channels, p.whole ? std::max<int64_t>(1, kDepth / taps)
                                           : std::clamp<int64_t>(most, kLeastDepth, kMostDepth));
  p.steps = divide_up(c.channels, p.depth);
  p.k_pitch = (p.depth * taps + 15) / 16 * 16 + 16;
  p.slivers = divide_up(c.rows, tile_rows);
  const int64_t sums_rows = kSumElements / (divide_up(out, lanes) * lanes * p.block_vectors * lanes);
  p.block_slivers = std::clamp<int64_t>(sums_rows / tile_rows, 1, p.slivers);
  while (p.block_slivers > 2 &&
         p.image_blocks * c.groups * divide_up(p.slivers, p.block_slivers) < 2 * parallel_width() &&
         parallel_width() > 1)
    p.block_slivers = divide_up(p.block_slivers, 2);
  p.row_blocks = divide_up(p.slivers, p.block_slivers);
  p.block_rows = divide_up(p.block_slivers * c.rows, p.slivers);
  return p;
}

}  // namespace mx::kernels
