#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/convolution_plan.h"
#include "operators/kernels/convolution_winograd.h"
#include "operators/kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/convolution_weights.cc"
#include <hwy/foreach_target.h>
// These must follow foreach_target.h.
#include "operators/kernels/convolution_dot-inl.h"
#include "operators/kernels/convolution_gather-inl.h"
#include "operators/kernels/convolution_image-inl.h"
#include "operators/kernels/convolution_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// How the gradient with respect to the weights is computed. The sums run over positions.
enum class WeightsMethod {
  /// Vectors hold channels, together with the taps of the last axis if these are adjacent. The image is
  /// transposed for that.
  channels,
  /// Vectors hold adjacent positions of a row. Each element of the result is a vector of partial sums until
  /// the end: for few channels.
  positions,
  /// Vectors hold one position of several images, and partial sums as above: for few channels and rows, and
  /// at least a vector of images.
  images,
};

struct WeightsPlan {
  PatchReach patch{Taps{}};
  int64_t taps = 1;
  WeightsMethod method = WeightsMethod::channels;
  PositionBlocks positions{1, {1, 1, 1}, 1, 1};
  int64_t chunks = 1, chunk_blocks = 1;  // parts of the sum: chunk_blocks blocks of positions each
  int64_t rows = 1, row_blocks = 1;      // of a task
  int64_t channels = 1, channel_blocks = 1;
  // By channels: a tap row is a run of `run` elements, padded to `run_pitch`.
  int64_t run = 0, run_pitch = 0, tap_rows = 0;
  PatchBuffer buffer;  // by positions
  Spatial extent{};    // coordinates of a block
  int64_t region = 0;  // elements of a task's sums

  int64_t tasks(int64_t groups) const { return chunks * groups * row_blocks * channel_blocks; }
  bool by_channels() const { return method == WeightsMethod::channels; }
  /// Each task computes whole sums, so it writes its part of the result itself.
  bool whole() const { return chunks == 1; }
};

// Costs in multiply-adds of vectors, fitted to measurements with AVX-512: of a multiply-add of the method
// `channels` with its loads, of a load that crosses cache lines and of one that does not, and of copying an
// element.
inline constexpr double kChannelsCost = 1.7, kCrossingCost = 2, kLoadCost = 0.5, kCopyCost = 1.5;

inline WeightsPlan plan_weights(const Correlation& c, int64_t lanes, int64_t tile_rows) {
  constexpr int64_t kPositions = 256, kDotPositions = 1024, kImagePositions = 128, kRun = 256,
                    kBufferElements = 128 << 10, kRegionElements = 64 << 10, kEnoughTasks = 8;
  WeightsPlan p;
  p.patch = PatchReach(c.taps);
  p.taps = product_of(c.taps.count);
  const bool adjacent = c.taps.gap[2] == 1 || c.taps.count[2] == 1;
  const int64_t run_taps = adjacent ? c.taps.count[2] : 1,
                most = std::max<int64_t>(1, kRun / run_taps / lanes) * lanes;
  p.channels = equal_part(c.channels, most, lanes);
  p.run = p.channels * run_taps;
  p.tap_rows = p.taps / run_taps;
  // The costs of a position of an image.
  const auto width = static_cast<double>(c.out.size[2]), l = static_cast<double>(lanes);
  const double by_channels =
      kChannelsCost *
      (static_cast<double>(std::max<int64_t>(c.rows, 4) * p.tap_rows * divide_up(p.run, lanes)) +
       static_cast<double>(p.channels));
  const int64_t sums = p.channels * p.taps, row_parts = divide_up(c.rows, kDotRows),
                tap_parts = divide_up(sums, kDotTaps);
  const auto products = static_cast<double>(c.rows * sums),
             loads = static_cast<double>(tap_parts * c.rows + row_parts * sums);
  const double copies = kCopyCost * static_cast<double>(c.rows + p.channels);
  const double by_positions =
      (products + kCrossingCost * loads) / l * (std::ceil(width / l) * l / width) + copies;
  const double by_images = (products + kLoadCost * loads) / l + copies;
  p.method = by_positions < by_channels ? WeightsMethod::positions : WeightsMethod::channels;
  if (c.step[2] == 1 && c.images >= lanes && lanes > 1 && p.channels == c.channels &&
      c.rows * c.channels * p.taps * lanes <= kRegionElements &&
      by_images < std::min(by_positions, by_channels))
    p.method = WeightsMethod::images;

  const bool by_images_of_block = p.method == WeightsMethod::images;
  int64_t positions = p.method == WeightsMethod::positions ? kDotPositions
                      : by_images_of_block                 ? kImagePositions
                                                           : kPositions;
  while (true) {
    p.positions = PositionBlocks(by_images_of_block ? 1 : c.images, c.out.size, positions,
                                 by_images_of_block ? 1 : lanes);
    if (by_images_of_block) {
      p.positions.block_images = lanes;
      p.positions.image_blocks = divide_up(c.images, lanes);
    }
    p.buffer = PatchBuffer(c.taps, p.patch, c.step, p.positions.block);
    for (size_t a = 0; a < 3; ++a) p.extent[a] = (p.positions.block[a] - 1) * c.step[a] + p.patch.reach[a];
    if (positions <= 32) break;
    if ((p.method == WeightsMethod::positions ? p.buffer.plane : product_of(p.extent)) * p.channels *
            p.positions.block_images <=
        kBufferElements)
      break;
    positions /= 2;
  }
  p.channel_blocks = divide_up(c.channels, p.channels);
  if (!p.by_channels()) {
    p.rows = equal_part(c.rows, 32);
    p.region = p.rows * p.channels * p.taps * lanes;
  } else {
    p.run_pitch = divide_up(p.run, lanes) * lanes;
    // Each block of rows transposes the images again, so there are as many rows as keep the sums in the
    // cache.
    p.rows = equal_part(c.rows, std::max(8 * tile_rows, kRegionElements / (p.tap_rows * p.run_pitch)));
    p.region = p.tap_rows * p.rows * p.run_pitch;
  }
  p.region = divide_up(p.region, 16) * 16;
  p.row_blocks = divide_up(c.rows, p.rows);
  // The number of parts depends only on the shapes, so that the order of the sums does.
  const double work = static_cast<double>(c.images) * static_cast<double>(product_of(c.out.size)) *
                      static_cast<double>(c.groups * c.rows) * static_cast<double>(c.channels * p.taps);
  const int64_t others = c.groups * p.row_blocks * p.channel_blocks, blocks = p.positions.count();
  const auto wanted = static_cast<int64_t>(std::min(16., work / 2e6));
  p.chunks = others >= kEnoughTasks ? 1 : std::clamp<int64_t>(divide_up(wanted, others), 1, blocks);
  p.chunk_blocks = divide_up(blocks, p.chunks);
  p.chunks = divide_up(blocks, p.chunk_blocks);
  return p;
}

/// Writes the part `index` of the result from its sums.
template <class S, class T>
void write_weights(const Correlation& c, const WeightsPlan& p, const T* sums, int64_t index) {
  const int64_t channel_block = index % p.channel_blocks, row_block = index / p.channel_blocks % p.row_blocks;
  const int64_t g = index / p.channel_blocks / p.row_blocks;
  const int64_t c0 = channel_block * p.channels, channels = std::min(p.channels, c.channels - c0);
  const int64_t r0 = row_block * p.rows, rows = std::min(p.rows, c.rows - r0);
  const Lanes<T> d;
  const Spatial& n = c.taps.count;
  const int64_t run_taps = p.taps / p.tap_rows;
  constexpr int64_t kL = kLanes<T>;
  std::vector<int64_t> from(static_cast<size_t>(p.taps)), to(from);  // of each tap
  for (int64_t t = 0; t < p.taps; ++t) {
    const auto i = static_cast<size_t>(t);
    from[i] = !p.by_channels() ? t * kL : t / run_taps * p.rows * p.run_pitch + t % run_taps * channels;
    to[i] =
        t / n[2] / n[1] * c.weights.tap[0] + t / n[2] % n[1] * c.weights.tap[1] + t % n[2] * c.weights.tap[2];
  }
  S* const out = static_cast<S*>(c.weights.data) + g * c.weights.group + c0 * c.weights.channel;
  for (int64_t r = 0; r < rows; ++r) {
    S* const row = out + (r0 + r) * c.weights.row;
    int64_t ch = 0;
    if (p.by_channels()) {
      const T* const at = sums + r * p.run_pitch;
      if constexpr (std::is_same_v<S, T>) {
        // Channels are adjacent in the sums, and taps in the result. The offsets of a vector's lanes must be
        // indices of the size of an element.
        const hn::RebindToSigned<Lanes<T>> di;
        using Index = hn::TFromD<decltype(di)>;
        const auto lane_offsets =
            hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<Index>(c.weights.channel)));
        const bool fits = c.weights.channel <= std::numeric_limits<Index>::max() / kL;
        for (; fits && ch + kL <= channels; ch += kL)
          for (size_t t = 0; t < from.size(); ++t)
            hn::ScatterIndex(hn::LoadU(d, at + from[t] + ch), d, row + ch * c.weights.channel + to[t],
                             lane_offsets);
      }
      for (; ch < channels; ++ch)
        for (size_t t = 0; t < from.size(); ++t)
          row[ch * c.weights.channel + to[t]] = narrow<S>(at[from[t] + ch]);
      continue;
    }
    for (; ch < channels; ++ch)
      for (size_t t = 0; t < from.size(); ++t) {
        const T* const partial = sums + (r * p.channels + ch) * p.taps * kL + from[t];
        row[ch * c.weights.channel + to[t]] =
            narrow<S>(hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, partial))));
      }
  }
}

/// Runs tasks of the gradient on one thread.
template <class S, class T>
class WeightsTask {
 public:
  /// `regions`: memory for the sums of all tasks, if they are not whole.
  WeightsTask(const Correlation& c, const WeightsPlan& p, T* regions) : c_(c), p_(p), regions_(regions) {
    const int64_t positions = p.positions.positions();
    const bool by_positions = p.method == WeightsMethod::positions;
    y_pitch_ = by_positions ? positions / p.positions.block[2] * divide_up(p.positions.block[2], kL) * kL
                            : (positions + 15) / 16 * 16 + 16;
    const int64_t image = by_positions ? p.channels * p.buffer.plane : product_of(p.extent) * p.channels;
    const int64_t y_rows = p.by_channels() ? kTileRows<T> : p.rows;
    const int64_t longest = p.method == WeightsMethod::images ? product_of(p.extent) : p.extent[2];
    const int64_t elements[] = {p.positions.block_images * image + 4 * kL, y_rows * y_pitch_ + 4 * kL,
                                Gather<S, T>::spare_elements(longest + kL), p.whole() ? p.region : 0};
    int64_t total = 64;
    for (const int64_t n : elements) total += divide_up(n, 16) * 16;
    x_ = static_cast<T*>(thread_workspace(static_cast<size_t>(total) * sizeof(T)));
    y_ = x_ + divide_up(elements[0], 16) * 16;
    spare_ = y_ + divide_up(elements[1], 16) * 16;
    own_region_ = spare_ + divide_up(elements[2], 16) * 16;
    image_pitch_ = image;
    std::fill_n(x_, elements[0], T{0});
    std::fill_n(y_, elements[1], T{0});
  }

  void run(int64_t task) {
    T* const sums = p_.whole() ? own_region_ : regions_ + task * p_.region;
    const int64_t index = task;
    const int64_t channel_block = task % p_.channel_blocks;
    task /= p_.channel_blocks;
    const int64_t row_block = task % p_.row_blocks;
    task /= p_.row_blocks;
    const int64_t g = task % c_.groups, chunk = task / c_.groups;
    c0_ = channel_block * p_.channels;
    channels_ = std::min(p_.channels, c_.channels - c0_);
    r0_ = row_block * p_.rows;
    rows_ = std::min(p_.rows, c_.rows - r0_);
    in_ = static_cast<const S*>(c_.in.data) + g * c_.in.group + c0_ * c_.in.channel;
    out_ = static_cast<const S*>(c_.out.data) + g * c_.out.group + r0_ * c_.out.channel;
    const int64_t end = std::min(p_.positions.count(), (chunk + 1) * p_.chunk_blocks);
    for (int64_t block = chunk * p_.chunk_blocks; block < end; ++block) {
      part_ = p_.positions.part(block, c_.images, c_.out.size);
      first_block_ = block == chunk * p_.chunk_blocks;
      for (size_t a = 0; a < 3; ++a) first_[a] = part_.first[a] * c_.step[a] + p_.patch.low[a];
      switch (p_.method) {
        case WeightsMethod::channels:
          transpose_images();
          multiply(sums);
          break;
        case WeightsMethod::positions:
          add_by_positions(sums);
          break;
        case WeightsMethod::images:
          add_by_images(sums);
          break;
      }
    }
    if (p_.whole()) write_weights<S, T>(c_, p_, sums, index);
  }

 private:
  static constexpr int64_t kL = kLanes<T>;

  /// Calls f(image, depth, height) for the rows of the block.
  template <class F>
  void each_row(const F& f) const {
    for (int64_t n = 0; n < part_.images; ++n)
      for (int64_t d = 0; d < part_.size[0]; ++d)
        for (int64_t h = 0; h < part_.size[1]; ++h) f(n, d, h);
  }
  const S* result_row(int64_t n, int64_t d, int64_t h) const {
    return out_ + (part_.image + n) * c_.out.image + (part_.first[0] + d) * c_.out.space[0] +
           (part_.first[1] + h) * c_.out.space[1] + part_.first[2] * c_.out.space[2];
  }
  /// Copies the block's positions of row r of the result's gradient.
  void copy_result(int64_t r, T* to) const {
    const Spatial &n = part_.size, &space = c_.out.space;
    // Rows of positions that follow each other are copied together.
    const bool joined = space[2] == 1 && space[1] == n[2];
    const int64_t heights = joined ? 1 : n[1], length = joined ? n[1] * n[2] : n[2];
    for (int64_t image = 0; image < part_.images; ++image)
      for (int64_t d = 0; d < n[0]; ++d)
        for (int64_t h = 0; h < heights; ++h, to += length) {
          const S* const from = result_row(image, d, h) + r * c_.out.channel;
          if (space[2] == 1) {
            copy_short(to, from, length);
          } else {
            read_run(to, from, space[2], length);
          }
        }
  }
  /// Starts to load rows `begin` to `end` of the result's gradient, while the products of other rows are
  /// computed.
  void fetch_rows(int64_t begin, int64_t end) const {
    if (c_.out.space[2] != 1) return;
    each_row([&](int64_t n, int64_t d, int64_t h) {
      for (int64_t r = begin; r < end; ++r) {
        const S* const row = result_row(n, d, h) + r * c_.out.channel;
        for (int64_t w = 0; w < part_.size[2]; w += 64 / static_cast<int64_t>(sizeof(S)))
          hwy::Prefetch(row + w);
      }
    });
  }
  void transpose_images();
  void multiply(T* sums);
  void add_by_positions(T* sums);
  void add_by_images(T* sums);
  template <class Offset>
  void add_dots(DotRows rows, const Offset& offset_of, T* sums);

  const Correlation& c_;
  const WeightsPlan& p_;
  T* const regions_;
  T *x_, *y_, *spare_, *own_region_;
  int64_t image_pitch_, y_pitch_;
  int64_t c0_ = 0, channels_ = 0, r0_ = 0, rows_ = 0;
  const S *in_ = nullptr, *out_ = nullptr;
  PositionBlocks::Part part_;
  bool first_block_ = false;  // of a task: the sums are not read
  Spatial first_{};
  std::vector<int64_t> offsets_, tap_offsets_;
};

/// Copies the block's part of the images with adjacent channels.
template <class S, class T>
void WeightsTask<S, T>::transpose_images() {
  const int64_t width = p_.extent[2], pitch = width + kL;
  const RowPart part(first_[2], 1, width, c_.in.size[2]);
  for (int64_t n = 0; n < part_.images; ++n)
    for (int64_t d = 0; d < p_.extent[0]; ++d)
      for (int64_t h = 0; h < p_.extent[1]; ++h) {
        T* const to = x_ + n * image_pitch_ + (d * p_.extent[1] + h) * width * channels_;
        const int64_t x0 = first_[0] + d, x1 = first_[1] + h;
        if (x0 < 0 || x0 >= c_.in.size[0] || x1 < 0 || x1 >= c_.in.size[1]) {
          std::fill_n(to, width * channels_, T{0});
          continue;
        }
        const S* const row =
            in_ + (part_.image + n) * c_.in.image + x0 * c_.in.space[0] + x1 * c_.in.space[1];
        for (int64_t ch = 0; ch < channels_; ch += kL) {
          const int64_t count = std::min(kL, channels_ - ch);
          for (int64_t i = 0; i < count; ++i)
            copy_row(spare_ + i * pitch, row + (ch + i) * c_.in.channel, c_.in.space[2], part);
          if (count == kL) {
            transpose_columns(to + ch, channels_, spare_, pitch, width);
          } else {
            for (int64_t w = 0; w < width; ++w)
              for (int64_t i = 0; i < count; ++i) to[w * channels_ + ch + i] = spare_[i * pitch + w];
          }
        }
      }
}

/// Adds the products of a block to the sums, which are tap rows of rows of runs.
template <class S, class T>
void WeightsTask<S, T>::multiply(T* sums) {
  // The last block of channels may be narrower.
  const int64_t run = p_.run / p_.channels * channels_, width = p_.extent[2];
  offsets_.clear();
  each_row([&](int64_t n, int64_t d, int64_t h) {
    const int64_t row =
        n * image_pitch_ + (d * c_.step[0] * p_.extent[1] + h * c_.step[1]) * width * channels_;
    for (int64_t w = 0; w < part_.size[2]; ++w) offsets_.push_back(row + w * c_.step[2] * channels_);
  });
  const auto positions = static_cast<int64_t>(offsets_.size());
  offsets_.insert(offsets_.end(), static_cast<size_t>(kOffsetsAhead), offsets_.back());
  PatchCall<T> call{};
  call.k = positions;
  call.a_rs = y_pitch_;
  call.offsets = offsets_.data();
  call.c_rs = p_.run_pitch;
  call.accumulate = !first_block_;
  const int64_t slivers = divide_up(rows_, kTileRows<T>), vectors = divide_up(run, kL);
  const bool run_taps = p_.tap_rows != p_.taps || c_.taps.count[2] == 1;
  for (int64_t s = 0; s < slivers; ++s) {
    const int64_t r = rows_ * s / slivers, height = rows_ * (s + 1) / slivers - r;
    for (int64_t i = 0; i < height; ++i) copy_result(r + i, y_ + i * y_pitch_);
    if (s + 1 < slivers) fetch_rows(r + height, rows_ * (s + 2) / slivers);
    for (int64_t t = 0; t < p_.tap_rows; ++t) {
      const int64_t taps2 = run_taps ? 1 : c_.taps.count[2];
      const Spatial tap = {t / taps2 / c_.taps.count[1], t / taps2 % c_.taps.count[1], t % taps2};
      Spatial x;
      for (size_t a = 0; a < 3; ++a) x[a] = c_.taps.first[a] + tap[a] * c_.taps.gap[a] - p_.patch.low[a];
      const T* const from = x_ + ((x[0] * p_.extent[1] + x[1]) * width + x[2]) * channels_;
      T* const to = sums + (t * p_.rows + r) * p_.run_pitch;
      for (int64_t v = 0; v < vectors; v += 2) {
        const int count = vectors - v >= 2 ? 2 : 1;
        const T* const b[2] = {from + v * kL, from + (v + 1) * kL};
        T* const c[2] = {to + v * kL, to + (v + 1) * kL};
        patch_tile_of<T>(height, count)(call, y_, b, c, nullptr);
      }
    }
  }
}

/// Adds the block's products to the sums, which are vectors of rows of channels of taps. offset_of(channel,
/// coordinates) returns where the buffer has what a tap reads for the first position.
template <class S, class T>
template <class Offset>
void WeightsTask<S, T>::add_dots(DotRows rows, const Offset& offset_of, T* sums) {
  rows.accumulate = !first_block_;
  tap_offsets_.clear();
  for (int64_t ch = 0; ch < channels_; ++ch)
    for (int64_t i = 0; i < c_.taps.count[0]; ++i)
      for (int64_t j = 0; j < c_.taps.count[1]; ++j)
        for (int64_t k = 0; k < c_.taps.count[2]; ++k) {
          const Spatial tap = {i, j, k};
          Spatial x;
          for (size_t a = 0; a < 3; ++a) x[a] = c_.taps.first[a] + tap[a] * c_.taps.gap[a] - p_.patch.low[a];
          tap_offsets_.push_back(offset_of(ch, x));
        }
  const auto taps = static_cast<int64_t>(tap_offsets_.size());
  const int64_t row_parts = divide_up(rows_, kDotRows), tap_parts = divide_up(taps, kDotTaps);
  for (int64_t i = 0; i < row_parts; ++i)
    for (int64_t j = 0; j < tap_parts; ++j) {
      const int64_t r = rows_ * i / row_parts, height = rows_ * (i + 1) / row_parts - r;
      const int64_t t = taps * j / tap_parts, across = taps * (j + 1) / tap_parts - t;
      dot_tile_of<T>(height, across)(rows, y_ + r * y_pitch_, y_pitch_, x_, tap_offsets_.data() + t,
                                     sums + (r * p_.channels * p_.taps + t) * kL, p_.channels * p_.taps * kL);
    }
}

template <class S, class T>
void WeightsTask<S, T>::add_by_images(T* sums) {
  const int64_t plane = product_of(p_.extent) * kL;
  const Gather<S, T> of_in(part_.images, c_.in.image, spare_), of_out(part_.images, c_.out.image, spare_);
  for (int64_t ch = 0; ch < channels_; ++ch)
    of_in.plane(in_ + part_.image * c_.in.image + ch * c_.in.channel,
                {c_.in.size, c_.in.space, first_, p_.extent}, x_ + ch * plane);
  for (int64_t r = 0; r < rows_; ++r)
    of_out.plane(out_ + part_.image * c_.out.image + r * c_.out.channel,
                 {c_.out.size, c_.out.space, part_.first, part_.size}, y_ + r * y_pitch_);
  const auto position = [&](const Spatial& x) {
    return ((x[0] * p_.extent[1] + x[1]) * p_.extent[2] + x[2]) * kL;
  };
  DotRows rows;
  rows.width = part_.size[2] * kL;
  offsets_.clear();
  for (int64_t d = 0; d < part_.size[0]; ++d)
    for (int64_t h = 0; h < part_.size[1]; ++h)
      offsets_.push_back(position({d * c_.step[0], h * c_.step[1], 0}));
  rows.count = static_cast<int64_t>(offsets_.size());
  rows.offsets = offsets_.data();
  add_dots(
      rows, [&](int64_t ch, const Spatial& x) { return ch * plane + position(x); }, sums);
}

template <class S, class T>
void WeightsTask<S, T>::add_by_positions(T* sums) {
  for (int64_t n = 0; n < part_.images; ++n)
    copy_channels(p_.buffer, x_ + n * image_pitch_, in_ + (part_.image + n) * c_.in.image, c_.in.channel,
                  channels_, c_.in.size, c_.in.space, first_);
  DotRows rows;
  rows.width = part_.size[2];
  offsets_.clear();
  each_row([&](int64_t n, int64_t d, int64_t h) {
    offsets_.push_back(n * image_pitch_ + p_.buffer.row(d * c_.step[0], h * c_.step[1]));
  });
  for (int64_t r = 0; r < rows_; ++r) copy_result(r, y_ + r * y_pitch_);
  rows.count = static_cast<int64_t>(offsets_.size());
  rows.offsets = offsets_.data();
  add_dots(
      rows,
      [&](int64_t ch, const Spatial& x) {
        return ch * p_.buffer.plane + p_.buffer.row(x[0], x[1]) + p_.buffer.column(x[2]);
      },
      sums);
}

template <class S, class T>
void weights_in(const Correlation& given, void* scratch) {
  const Correlation c = merged(given);
  const WeightsPlan p = plan_weights(c, kLanes<T>, kTileRows<T>);
  T* const regions = static_cast<T*>(scratch);
  const int64_t tasks = p.tasks(c.groups);
  const double work = static_cast<double>(p.positions.positions() * p.chunk_blocks) *
                      static_cast<double>(p.rows * p.channels * p.taps);
  const auto grain = static_cast<int64_t>(std::clamp(5e5 / std::max(work, 1.), 1., 1e6));
  parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    WeightsTask<S, T> task(c, p, regions);
    for (int64_t i = begin; i < end; ++i) task.run(i);
  });
  if (p.whole()) return;
  const int64_t parts = tasks / p.chunks;
  parallel_for(parts, std::max<int64_t>(1, (64 << 10) / (p.region * p.chunks)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   // The regions of all chunks are added in order.
                   T* const sums = regions + i * p.region;
                   for (int64_t chunk = 1; chunk < p.chunks; ++chunk) {
                     const T* const more = regions + (chunk * parts + i) * p.region;
                     for (int64_t e = 0; e < p.region; ++e) sums[e] += more[e];
                   }
                   write_weights<S, T>(c, p, sums, i);
                 }
               });
}

size_t weights_scratch_in(const Correlation& given) {
  const Correlation c = merged(given);
  const bool wide = c.dtype == DType::f64;
  const WeightsPlan p = wide ? plan_weights(c, kLanes<double>, kTileRows<double>)
                             : plan_weights(c, kLanes<float>, kTileRows<float>);
  if (p.whole()) return 0;
  return static_cast<size_t>(p.tasks(c.groups) * p.region) * (wide ? sizeof(double) : sizeof(float));
}

void weights_typed(const Correlation& c, void* scratch) {
  switch (c.dtype) {
    case DType::f64:
      return weights_in<double, double>(c, scratch);
    case DType::f16:
      return weights_in<float16, float>(c, scratch);
    case DType::bf16:
      return weights_in<bfloat16, float>(c, scratch);
    default:
      return weights_in<float, float>(c, scratch);
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(weights_typed);
HWY_EXPORT(weights_scratch_in);

namespace {

bool has_no_weights(const Correlation& c) {
  return c.groups == 0 || c.rows == 0 || c.channels == 0 || product_of(c.taps.count) == 0;
}
bool has_no_positions(const Correlation& c) { return c.images == 0 || product_of(c.out.size) == 0; }

template <class S>
void zero_weights(const Correlation& c) {
  const Spatial& n = c.taps.count;
  for (int64_t g = 0; g < c.groups; ++g)
    for (int64_t r = 0; r < c.rows; ++r)
      for (int64_t ch = 0; ch < c.channels; ++ch)
        for (int64_t i = 0; i < n[0]; ++i)
          for (int64_t j = 0; j < n[1]; ++j)
            for (int64_t k = 0; k < n[2]; ++k)
              static_cast<S*>(
                  c.weights.data)[g * c.weights.group + r * c.weights.row + ch * c.weights.channel +
                                  i * c.weights.tap[0] + j * c.weights.tap[1] + k * c.weights.tap[2]] = S(0);
}

}  // namespace

size_t correlate_weights_scratch(const Correlation& c) {
  if (has_no_weights(c) || has_no_positions(c)) return 0;
  const size_t direct = HWY_DYNAMIC_DISPATCH(weights_scratch_in)(c);
  return uses_winograd_for_weights(c) ? std::max(direct, winograd_weights_scratch(c)) : direct;
}

void correlate_weights(const Correlation& c, void* scratch) {
  if (has_no_weights(c)) return;
  if (!has_no_positions(c)) {
    if (uses_winograd_for_weights(c) && correlate_weights_winograd(c, scratch)) return;
    return HWY_DYNAMIC_DISPATCH(weights_typed)(c, scratch);
  }
  switch (c.dtype) {
    case DType::f64:
      return zero_weights<double>(c);
    case DType::f16:
      return zero_weights<float16>(c);
    case DType::bf16:
      return zero_weights<bfloat16>(c);
    default:
      return zero_weights<float>(c);
  }
}

}  // namespace mx::kernels
#endif
