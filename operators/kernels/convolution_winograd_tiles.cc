#include "operators/kernels/convolution_winograd_tiles.h"

#include <algorithm>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/convolution_winograd.h"

namespace mx::kernels {
namespace {

/// Returns whether a correlation has 3 x 3 adjacent taps, moves by one element and is summed in f32.
bool has_form(const Correlation& c) {
  if (c.dtype == DType::f64 || c.in.size[0] != 1 || c.out.size[0] != 1 || c.taps.first[0] != 0) return false;
  if (c.taps.count != Spatial{1, 3, 3} || c.step != Spatial{1, 1, 1}) return false;
  for (const size_t a : {1, 2})
    if (c.taps.gap[a] != 1 && c.taps.gap[a] != -1) return false;
  return c.in.space[2] == 1 && c.out.space[2] == 1;
}

}  // namespace

WinogradPlan::WinogradPlan(const Correlation& c, int64_t lanes) {
  constexpr int64_t kFewTiles = 64, kManyTiles = 128, kManyWeights = 128 * 128, kDepth = 256, kLeastRows = 32;
  const int64_t tiles = WinogradTiles(c).count(), threads = parallel_width();
  // Each block reads all weights, which are too many for the caches if there are many channels.
  int64_t most = c.channels * c.rows > kManyWeights ? kManyTiles : kFewTiles;
  while (most > 2 * lanes && divide_up(tiles, most) * c.groups < threads) most /= 2;
  block = divide_up(equal_part(tiles, most, 2 * lanes), 2 * lanes) * 2 * lanes;
  blocks = divide_up(tiles, block);
  while (row_parts * blocks * c.groups < threads && c.rows / (row_parts + 1) >= kLeastRows) ++row_parts;
  depth = equal_part(c.channels, kDepth);
  weights_pitch = (c.channels + 15) / 16 * 16 + 16;
  tiles_pitch = block + std::max<int64_t>(16, lanes);
}

std::vector<TileRun> WinogradTiles::runs(int64_t begin, int64_t end) const {
  std::vector<TileRun> runs;
  for (int64_t tile = begin; tile < end;) {
    const int64_t row = tile / across_, first = tile % across_;
    TileRun run{};
    run.image = row / down_;
    run.y = row % down_ * 2;
    run.x = first * 2;
    run.count = std::min(across_ - first, end - tile);
    run.at = tile - begin;
    run.follows = !runs.empty() && run.y > 0 && runs.back().x == run.x && runs.back().count == run.count &&
                  runs.back().y == run.y - 2 && runs.back().image == run.image;
    runs.push_back(run);
    tile += run.count;
  }
  return runs;
}

WinogradWeightsPlan::WinogradWeightsPlan(const Correlation& c, int64_t lanes) {
  constexpr int64_t kTiles = 128, kRows = 128, kChannels = 256, kMostChunks = 16, kEnoughTasks = 8;
  const int64_t tiles = WinogradTiles(c).count();
  block = equal_part(tiles, kTiles);
  blocks = divide_up(tiles, block);
  rows = equal_part(c.rows, kRows);
  row_parts = divide_up(c.rows, rows);
  channels = equal_part(c.channels, kChannels, lanes);
  channel_parts = divide_up(c.channels, channels);
  // The number of chunks depends only on the shapes, so that the order of the sums does.
  const int64_t all = parts(c.groups);
  chunks = all >= kEnoughTasks ? 1 : std::clamp<int64_t>(std::min(kMostChunks / all, blocks / 4), 1, blocks);
  chunk_blocks = divide_up(blocks, chunks);
  chunks = divide_up(blocks, chunk_blocks);
  const int64_t line = std::max<int64_t>(16, lanes);
  channels_pitch = divide_up(channels, line) * line + line;
  tiles_pitch = divide_up(block, line) * line + line;
  sums_pitch = channels_pitch;
  sums_plane = rows * sums_pitch + 16;
  region = kWinogradSize * sums_plane;
}

WinogradWeightsPlan::Part WinogradWeightsPlan::part(int64_t index, const Correlation& c) const {
  Part p;
  p.channel = index % channel_parts * channels;
  p.channels = std::min(channels, c.channels - p.channel);
  index /= channel_parts;
  p.row = index % row_parts * rows;
  p.rows = std::min(rows, c.rows - p.row);
  p.group = index / row_parts;
  return p;
}

bool winograd_fits(const Correlation& c) {
  constexpr int64_t kLeastChannels = 32, kLeastTiles = 32;
  return c.winograd && has_form(c) && c.channels >= kLeastChannels && c.rows >= kLeastChannels &&
         WinogradTiles(c).count() >= kLeastTiles;
}

bool winograd_weights_fits(const Correlation& c) { return winograd_fits(c); }

}  // namespace mx::kernels
