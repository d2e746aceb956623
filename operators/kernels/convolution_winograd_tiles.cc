#include "operators/kernels/convolution_winograd_tiles.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/convolution_winograd.h"

namespace mx::kernels {
namespace {

/// Returns whether a correlation has 3 x 3 adjacent taps along the last two axes, moves by one element along
/// these and is summed in f32.
bool has_form(const Correlation& c) {
  if (c.dtype == DType::f64) return false;
  for (const size_t a : {1, 2})
    if (c.taps.count[a] != 3 || c.step[a] != 1 || std::abs(c.taps.gap[a]) != 1) return false;
  return c.in.space[2] == 1 && c.out.space[2] == 1;
}

bool is_large(const Correlation& c) {
  constexpr int64_t kLeastPlanes = 32, kLeastRows = 32, kLeastTiles = 32;
  return winograd_planes(c) >= kLeastPlanes && c.rows >= kLeastRows &&
         WinogradTiles(c).count() >= kLeastTiles;
}

// Costs in multiply-adds of vectors of 16 elements, fitted to measurements with AVX-512. Of the
// transformation of a row of tiles of a plane, for each vector and for each tile, and the same of the sums of
// a row of weights; of the transformation of the weights of a plane and a row.
constexpr int64_t kVector = 16;
constexpr double kImageVector = 130, kImageTile = 7.5, kSumVector = 65, kSumTile = 2.8, kWeightCost = 11;
// Elements of f16 and bf16 are converted, in short runs.
constexpr double kHalfCost = 2.5;
// Of sums of products per multiply-add: in general, and relative to that without a vector of images.
constexpr double kDirectCost = 1.08, kFewImagesCost = 1.25, kLeastGain = 1.1;

/// The cost of Winograd's method, with the products of `tiles` tiles.
double winograd_cost(const Correlation& c, int64_t tiles) {
  const WinogradTiles all(c);
  const auto rows = static_cast<double>(c.rows), planes = static_cast<double>(winograd_planes(c));
  const auto runs = static_cast<double>(all.count() / all.across() * divide_up(all.across(), kVector));
  const auto count = static_cast<double>(all.count());
  const double transforms =
      planes * (kImageVector * runs + kImageTile * count) + rows * (kSumVector * runs + kSumTile * count);
  return static_cast<double>(kWinogradSize * tiles) * rows * planes / kVector +
         (c.dtype == DType::f32 ? 1 : kHalfCost) * transforms + kWeightCost * planes * rows;
}

/// The cost of sums of products, if no taps are left out.
double direct_cost(const Correlation& c) {
  return kDirectCost * 9 * static_cast<double>(c.rows) * static_cast<double>(winograd_planes(c)) *
         static_cast<double>(c.images * product_of(c.out.size)) / kVector;
}

/// The cost of correlate() relative to direct_cost(). It leaves out the taps outside of the images if these
/// are many and small (plan_lanes()).
double share_computed(const Correlation& c) {
  const int64_t positions = product_of(c.in.size);
  if (c.images < kVector || std::max(positions, product_of(c.out.size)) > 256) return kFewImagesCost;
  const double inside = share_inside(c, 1) * share_inside(c, 2);
  return positions <= 100 || inside < 0.75 ? inside : kFewImagesCost;
}

}  // namespace

WinogradPlan::WinogradPlan(const Correlation& c, int64_t lanes) {
  constexpr int64_t kFewTiles = 64, kManyTiles = 128, kManyWeights = 128 * 128, kDepth = 256, kLeastRows = 32,
                    kMostRows = 1024;
  const int64_t tiles = WinogradTiles(c).count(), planes = winograd_planes(c), threads = parallel_width();
  // Each block reads all weights, which are too many for the caches if there are many channels.
  int64_t most = planes * c.rows > kManyWeights ? kManyTiles : kFewTiles;
  while (most > 2 * lanes && divide_up(tiles, most) * c.groups < threads) most /= 2;
  block = divide_up(equal_part(tiles, most, 2 * lanes), 2 * lanes) * 2 * lanes;
  blocks = divide_up(tiles, block);
  row_parts = divide_up(c.rows, kMostRows);
  while (row_parts * blocks * c.groups < threads && c.rows / (row_parts + 1) >= kLeastRows) ++row_parts;
  depth = equal_part(planes, kDepth);
  weights_pitch = (planes + 15) / 16 * 16 + 16;
  tiles_pitch = block + std::max<int64_t>(16, lanes);
}

std::vector<ImagePlane> image_planes(const Correlation& c) {
  std::vector<ImagePlane> planes;
  for (int64_t ch = 0; ch < c.channels; ++ch)
    for (int64_t tap = 0; tap < c.taps.count[0]; ++tap)
      planes.push_back({ch * c.in.channel, c.taps.first[0] + tap * c.taps.gap[0]});
  return planes;
}

std::vector<TileRun> WinogradTiles::runs(int64_t begin, int64_t end) const {
  std::vector<TileRun> runs;
  for (int64_t tile = begin; tile < end;) {
    const int64_t row = tile / across_, first = tile % across_;
    TileRun run{};
    run.image = row / down_ / depth_;
    run.depth = row / down_ % depth_;
    run.y = row % down_ * 2;
    run.x = first * 2;
    run.count = std::min(across_ - first, end - tile);
    run.at = tile - begin;
    run.follows = !runs.empty() && run.y > 0 && runs.back().x == run.x && runs.back().count == run.count &&
                  runs.back().y == run.y - 2 && runs.back().depth == run.depth &&
                  runs.back().image == run.image;
    runs.push_back(run);
    tile += run.count;
  }
  return runs;
}

WinogradWeightsPlan::WinogradWeightsPlan(const Correlation& c, int64_t lanes) {
  constexpr int64_t kTiles = 128, kRows = 128, kPlanes = 256, kMostChunks = 16, kEnoughTasks = 8;
  const int64_t tiles = WinogradTiles(c).count();
  block = equal_part(tiles, kTiles);
  blocks = divide_up(tiles, block);
  rows = equal_part(c.rows, kRows);
  row_parts = divide_up(c.rows, rows);
  planes = equal_part(winograd_planes(c), kPlanes, lanes);
  plane_parts = divide_up(winograd_planes(c), planes);
  // The number of chunks depends only on the shapes, so that the order of the sums does.
  const int64_t all = parts(c.groups);
  chunks = all >= kEnoughTasks ? 1 : std::clamp<int64_t>(std::min(kMostChunks / all, blocks / 4), 1, blocks);
  chunk_blocks = divide_up(blocks, chunks);
  chunks = divide_up(blocks, chunk_blocks);
  const int64_t line = std::max<int64_t>(16, lanes);
  planes_pitch = divide_up(planes, line) * line + line;
  tiles_pitch = divide_up(block, line) * line + line;
  sums_pitch = planes_pitch;
  sums_number = odd_lines(rows * sums_pitch);
  region = kWinogradSize * sums_number;
}

WinogradWeightsPlan::Part WinogradWeightsPlan::part(int64_t index, const Correlation& c) const {
  Part p;
  p.plane = index % plane_parts * planes;
  p.planes = std::min(planes, winograd_planes(c) - p.plane);
  index /= plane_parts;
  p.row = index % row_parts * rows;
  p.rows = std::min(rows, c.rows - p.row);
  p.group = index / row_parts;
  return p;
}

bool uses_winograd(const Correlation& c) {
  if (c.winograd == UseWinograd::never || !has_form(c)) return false;
  if (c.winograd == UseWinograd::whenever_possible) return true;
  if (!is_large(c)) return false;
  // Products are computed for whole pairs of vectors of tiles.
  const int64_t tiles = divide_up(WinogradTiles(c).count(), 2 * kVector) * 2 * kVector;
  return share_computed(c) * direct_cost(c) > kLeastGain * winograd_cost(c, tiles);
}

bool uses_winograd_for_weights(const Correlation& c) {
  if (c.winograd == UseWinograd::never || !has_form(c)) return false;
  if (c.winograd == UseWinograd::whenever_possible) return true;
  return is_large(c) &&
         kFewImagesCost * direct_cost(c) > kLeastGain * winograd_cost(c, WinogradTiles(c).count());
}

}  // namespace mx::kernels
