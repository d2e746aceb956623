// Convolutions of many small images: a vector holds one position of several images. Then no tap that lies
// outside of an image is multiplied. Those are a third of all taps for a kernel of 3 x 3 and images of 4 x 4
// with padding, and half of them for the gradient of a kernel of 5 x 5 with respect to images of 14 x 14.
// Included once per instruction set.
#if defined(MX_CONVOLUTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_LANES_INL_H_
#    undef MX_CONVOLUTION_LANES_INL_H_
#  else
#    define MX_CONVOLUTION_LANES_INL_H_
#  endif

#  include <algorithm>
#  include <cstdint>
#  include <type_traits>
#  include <vector>

#  include "ndarray/kernels/parallel.h"
#  include "operators/kernels/convolution_image-inl.h"
#  include "operators/kernels/convolution_lanes.h"
#  include "operators/kernels/convolution_pack-inl.h"
#  include "operators/kernels/convolution_tile-inl.h"
#  include "operators/kernels/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// Adjacent taps of the last axis, from tap `first` on, and the vectors of a block that all of them
/// contribute to: what each vector reads for the first of these taps, and where its sum is.
struct TapRun {
  int64_t first = 0, taps = 1;
  std::vector<int64_t> from{}, to{};
};

/// Tables that all tasks of a convolution share.
template <class T>
class LanesTables {
 public:
  LanesTables(const Correlation& c, const LanesPlan& p) : c_(c), p_(p) {
    plane = product_of(c.in.size) * p.block_vectors * kL + kL;
    if (product_of(c.in.size) * p.block_vectors % 2 != 0) plane += kL;
    sums_pitch = divide_up(product_of(c.out.size), kL) * kL * p.block_vectors * kL;
    offsets = offsets_of(p.depth);
    last_offsets = offsets_of(c.channels - (p.steps - 1) * p.depth);
    if (p.whole) {
      runs.push_back({0, product_of(c.taps.count)});
      for (int64_t i = 0, at = 0; i < c.out.size[0]; ++i)
        for (int64_t j = 0; j < c.out.size[1]; ++j)
          for (int64_t k = 0; k < c.out.size[2]; ++k, ++at)
            add_vectors(runs[0], position_of({i, j, k}, {0, 0, 0}), at);
    } else {
      for (int64_t i = 0; i < c.taps.count[0]; ++i)
        for (int64_t j = 0; j < c.taps.count[1]; ++j) find_runs(i, j);
    }
  }

  int64_t plane = 0;       // elements of a channel of a block: an odd number of vectors, for the cache sets
  int64_t sums_pitch = 0;  // elements of a row of sums
  // The rows of a product relative to its first one. `last_offsets`: for the channels of the last step.
  std::vector<int64_t> offsets, last_offsets;
  std::vector<TapRun> runs;

 private:
  static constexpr int64_t kL = kLanes<T>;

  /// The rows are taps of channels, as in the packed weights, or channels of taps if p_.whole.
  std::vector<int64_t> offsets_of(int64_t channels) const {
    const Spatial& n = p_.whole ? c_.taps.count : Spatial{1, 1, c_.taps.count[2]};
    std::vector<int64_t> rows;
    const auto add_taps = [&](int64_t ch) {
      for (int64_t i = 0; i < n[0]; ++i)
        for (int64_t j = 0; j < n[1]; ++j)
          for (int64_t k = 0; k < n[2]; ++k) rows.push_back(ch * plane + tap_offset({i, j, k}));
    };
    if (p_.whole) {
      for (int64_t ch = 0; ch < channels; ++ch) add_taps(ch);
    } else {
      for (int64_t k = 0; k < n[2]; ++k)
        for (int64_t ch = 0; ch < channels; ++ch) rows.push_back(ch * plane + tap_offset({0, 0, k}));
    }
    rows.insert(rows.end(), static_cast<size_t>(kOffsetsAhead), rows.back());
    return rows;
  }
  int64_t tap_offset(const Spatial& t) const {
    int64_t at = 0;
    for (size_t a = 0; a < 3; ++a) at = at * c_.in.size[a] + t[a] * c_.taps.gap[a];
    return at * kL;
  }
  int64_t coordinate(size_t a, int64_t o, int64_t tap) const {
    return o * c_.step[a] + c_.taps.first[a] + tap * c_.taps.gap[a];
  }
  bool is_inside(size_t a, int64_t o, int64_t tap) const {
    const int64_t x = coordinate(a, o, tap);
    return x >= 0 && x < c_.in.size[a];
  }
  /// The position of the image that tap t reads for the result at o.
  int64_t position_of(const Spatial& o, const Spatial& t) const {
    int64_t at = 0;
    for (size_t a = 0; a < 3; ++a) at = at * c_.in.size[a] + coordinate(a, o[a], t[a]);
    return at;
  }
  void add_vectors(TapRun& run, int64_t from, int64_t to) const {
    for (int64_t v = 0; v < p_.block_vectors; ++v) {
      run.from.push_back((v * product_of(c_.in.size) + from) * kL);
      run.to.push_back(v * sums_pitch / p_.block_vectors + to * kL);
    }
  }
  /// Finds the runs of the taps (i, j, ..).
  void find_runs(int64_t i, int64_t j) {
    const Spatial &n = c_.out.size, &taps = c_.taps.count;
    for (int64_t w = 0; w < n[2]; ++w) {
      int64_t first = 0, end = taps[2];
      while (first < end && !is_inside(2, w, first)) ++first;
      while (end > first && !is_inside(2, w, end - 1)) --end;
      if (first == end) continue;
      const int64_t tap = (i * taps[1] + j) * taps[2] + first;
      auto run = std::find_if(runs.begin(), runs.end(),
                              [&](const TapRun& r) { return r.first == tap && r.taps == end - first; });
      if (run == runs.end()) run = runs.insert(run, {tap, end - first});
      for (int64_t d = 0; d < n[0]; ++d)
        for (int64_t h = 0; h < n[1]; ++h)
          if (is_inside(0, d, i) && is_inside(1, h, j))
            add_vectors(*run, position_of({d, h, w}, {i, j, first}), (d * n[1] + h) * n[2] + w);
    }
  }

  const Correlation& c_;
  const LanesPlan& p_;
};

/// Runs tasks on one thread. A task is a block of images, a group and a block of rows.
template <class S, class T>
class LanesTask {
 public:
  LanesTask(const Correlation& c, const LanesPlan& p, const LanesTables<T>& tables, const T* weights,
            const T* bias)
      : c_(c),
        p_(p),
        tables_(tables),
        weights_(weights),
        bias_(bias),
        in_positions_(product_of(c.in.size)),
        out_positions_(product_of(c.out.size)) {
    const int64_t spare_pitch = in_positions_ + kL;
    const int64_t elements[] = {p.depth * tables.plane, (p.block_rows + p.tile_rows) * tables.sums_pitch,
                                kL * std::max(spare_pitch, kL)};
    T* at = static_cast<T*>(
        thread_workspace(static_cast<size_t>(elements[0] + elements[1] + elements[2] + 64) * sizeof(T)));
    buffer_ = at;
    sums_ = buffer_ + elements[0];
    spare_ = sums_ + elements[1];
  }

  void run(int64_t task) {
    s0_ = task % p_.row_blocks * p_.block_slivers;
    s1_ = std::min(p_.slivers, s0_ + p_.block_slivers);
    task /= p_.row_blocks;
    const int64_t g = task % c_.groups;
    image0_ = task / c_.groups * p_.block_vectors * kL;
    images_ = std::min(p_.block_vectors * kL, c_.images - image0_);
    const S* const in = static_cast<const S*>(c_.in.data) + image0_ * c_.in.image + g * c_.in.group;
    S* const out = static_cast<S*>(c_.out.data) + image0_ * c_.out.image + g * c_.out.group;
    const int64_t pitch = tables_.sums_pitch;
    for (int64_t r = row_from(s0_); r < row_from(s1_); ++r)
      std::fill_n(sums_ + (r - row_from(s0_)) * pitch, pitch,
                  bias_ != nullptr ? bias_[g * c_.rows + r] : T{0});
    for (int64_t step = 0; step < p_.steps; ++step) {
      const int64_t c0 = step * p_.depth, channels = std::min(p_.depth, c_.channels - c0);
      for (int64_t ch = 0; ch < channels; ++ch)
        gather(in + (c0 + ch) * c_.in.channel, buffer_ + ch * tables_.plane);
      multiply(weights_ + (g * p_.steps + step) * c_.rows * p_.k_pitch, channels);
    }
    for (int64_t r = row_from(s0_); r < row_from(s1_); ++r)
      scatter(sums_ + (r - row_from(s0_)) * pitch, out + r * c_.out.channel);
  }

 private:
  static constexpr int64_t kL = kLanes<T>;

  int64_t row_from(int64_t sliver) const { return c_.rows * sliver / p_.slivers; }

  /// Copies one channel of the block's images: vectors of images for each position.
  void gather(const S* from, T* to) {
    const int64_t pitch = in_positions_ + kL;
    const Spatial &n = c_.in.size, &space = c_.in.space;
    const bool adjacent =
        space[2] == 1 && (n[1] == 1 || space[1] == n[2]) && (n[0] == 1 || space[0] == n[1] * n[2]);
    for (int64_t v = 0; v * kL < images_; ++v, to += in_positions_ * kL) {
      for (int64_t i = 0; i < kL; ++i) {
        T* row = spare_ + i * pitch;
        if (v * kL + i >= images_) {
          std::fill_n(row, in_positions_, T{0});
          continue;
        }
        const S* const image = from + (v * kL + i) * c_.in.image;
        if (adjacent) {
          copy_short(row, image, in_positions_);
          continue;
        }
        for (int64_t d = 0; d < n[0]; ++d)
          for (int64_t h = 0; h < n[1]; ++h, row += n[2])
            read_run(row, image + d * space[0] + h * space[1], space[2], n[2]);
      }
      transpose_columns(to, kL, spare_, pitch, in_positions_);
    }
  }

  void multiply(const T* weights, int64_t channels) {
    PatchCall<T> call{};
    call.a_rs = p_.k_pitch;
    call.offsets = (channels == p_.depth ? tables_.offsets : tables_.last_offsets).data();
    call.c_rs = tables_.sums_pitch;
    call.accumulate = true;
    const auto used = static_cast<size_t>(divide_up(images_, kL));
    const auto block_vectors = static_cast<size_t>(p_.block_vectors);
    for (int64_t s = s0_; s < s1_; ++s) {
      const int64_t row = row_from(s), height = row_from(s + 1) - row;
      T* const to = sums_ + (row - row_from(s0_)) * call.c_rs;
      for (const TapRun& run : tables_.runs) {
        const T* const a = weights + row * p_.k_pitch + run.first * channels;
        call.k = run.taps * channels;
        vectors_.clear();
        for (size_t v = 0; v < run.from.size(); ++v)
          if (v % block_vectors < used) vectors_.push_back(v);  // the last block may have fewer images
        const int widest = height <= kThinRows ? kThinVectors : 2;
        for (size_t v = 0; v < vectors_.size();) {
          const size_t left = vectors_.size() - v;
          const int width = left >= static_cast<size_t>(widest) ? widest : left >= 2 ? 2 : 1;
          const T* b[kThinVectors];
          T* c[kThinVectors];
          for (int i = 0; i < width; ++i) {
            const size_t at = vectors_[v + static_cast<size_t>(i)];
            b[i] = buffer_ + run.from[at];
            c[i] = to + run.to[at];
          }
          patch_tile_of<T>(height, width)(call, a, b, c, nullptr);
          v += static_cast<size_t>(width);
        }
      }
    }
  }

  /// Writes one row of the sums, which has vectors of images for each position.
  void scatter(const T* from, S* to) {
    const Spatial &n = c_.out.size, &space = c_.out.space;
    const bool adjacent =
        space[2] == 1 && (n[1] == 1 || space[1] == n[2]) && (n[0] == 1 || space[0] == n[1] * n[2]);
    for (int64_t v = 0; v * kL < images_; ++v, from += tables_.sums_pitch / p_.block_vectors) {
      const int64_t images = std::min(kL, images_ - v * kL);
      for (int64_t p = 0; p < out_positions_; p += kL) {
        transpose_columns(spare_, kL, from + p * kL, kL, kL);
        const int64_t count = std::min(kL, out_positions_ - p);
        for (int64_t i = 0; i < images; ++i) {
          S* const image = to + (v * kL + i) * c_.out.image;
          const T* const sums = spare_ + i * kL;
          if (adjacent) {
            if constexpr (std::is_same_v<S, T>)
              copy_short(image + p, sums, count);
            else
              write_run(image + p, 1, sums, count);
          } else {
            for (int64_t j = 0; j < count; ++j)
              image[(p + j) / n[2] / n[1] * space[0] + (p + j) / n[2] % n[1] * space[1] +
                    (p + j) % n[2] * space[2]] = narrow<S>(sums[j]);
          }
        }
      }
    }
  }

  const Correlation& c_;
  const LanesPlan& p_;
  const LanesTables<T>& tables_;
  const T* const weights_;
  const T* const bias_;
  const int64_t in_positions_, out_positions_;
  T *buffer_ = nullptr, *sums_ = nullptr, *spare_ = nullptr;
  std::vector<size_t> vectors_;  // of a run, those that hold images
  int64_t image0_ = 0, images_ = 0, s0_ = 0, s1_ = 0;
};

template <class T>
size_t lanes_scratch(const Correlation& c, const LanesPlan& p) {
  return static_cast<size_t>(c.groups * p.steps * c.rows * p.k_pitch + c.groups * c.rows + 32) * sizeof(T);
}

template <class S, class T>
void correlate_lanes(const Correlation& c, const LanesPlan& p, void* scratch) {
  T* const weights = static_cast<T*>(scratch);
  T* const bias = weights + c.groups * p.steps * c.rows * p.k_pitch;
  pack_weights<S>(c, {p.depth, p.steps, p.k_pitch, !p.whole}, weights);
  if (c.bias != nullptr) read_run(bias, static_cast<const S*>(c.bias), c.bias_stride, c.groups * c.rows);
  const LanesTables<T> tables(c, p);
  parallel_for(p.image_blocks * c.groups * p.row_blocks, 1, [&](int64_t begin, int64_t end) {
    LanesTask<S, T> task(c, p, tables, weights, c.bias != nullptr ? bias : nullptr);
    for (int64_t i = begin; i < end; ++i) task.run(i);
  });
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_LANES_INL_H_
