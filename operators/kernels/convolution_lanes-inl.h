// Convolutions of many small images: a vector holds one position of several images. Then no tap that lies
// outside of an image is multiplied, which for a kernel of 3 x 3 and images of 4 x 4 is a third of all.
// Included once per instruction set.
#if defined(MX_CONVOLUTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_LANES_INL_H_
#    undef MX_CONVOLUTION_LANES_INL_H_
#  else
#    define MX_CONVOLUTION_LANES_INL_H_
#  endif

#  include <algorithm>
#  include <cstdint>
#  include <vector>

#  include "ndarray/kernels/parallel.h"
#  include "operators/kernels/convolution_image-inl.h"
#  include "operators/kernels/convolution_lanes.h"
#  include "operators/kernels/convolution_pack-inl.h"
#  include "operators/kernels/convolution_tile-inl.h"
#  include "operators/kernels/workspace.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// The vectors of a block that one tap contributes to, and what it reads for each.
struct TapVectors {
  std::vector<int64_t> from, to;
};

/// Runs tasks on one thread. A task is a block of images, a group and a block of rows.
template <class S, class T>
class LanesTask {
 public:
  LanesTask(const Correlation& c, const LanesPlan& p, const T* weights, const T* bias)
      : c_(c),
        p_(p),
        weights_(weights),
        bias_(bias),
        in_positions_(product_of(c.in.size)),
        out_positions_(product_of(c.out.size)) {
    const int64_t block_vectors = p.block_vectors;
    plane_ = in_positions_ * block_vectors * kL + kL;  // an odd number of vectors, for the cache sets
    if (in_positions_ * block_vectors % 2 != 0) plane_ += kL;
    sums_pitch_ = divide_up(out_positions_, kL) * kL * block_vectors * kL;
    const int64_t spare_pitch = in_positions_ + kL;
    const int64_t elements[] = {p.depth * plane_, (p.block_rows + p.tile_rows) * sums_pitch_,
                                kL * std::max(spare_pitch, kL)};
    T* at = static_cast<T*>(
        thread_workspace(static_cast<size_t>(elements[0] + elements[1] + elements[2] + 64) * sizeof(T)));
    buffer_ = at;
    sums_ = buffer_ + elements[0];
    spare_ = sums_ + elements[1];
    find_offsets();
    find_vectors();
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
    for (int64_t r = row_from(s0_); r < row_from(s1_); ++r)
      std::fill_n(sums_ + (r - row_from(s0_)) * sums_pitch_, sums_pitch_,
                  bias_ != nullptr ? bias_[g * c_.rows + r] : T{0});
    for (int64_t step = 0; step < p_.steps; ++step) {
      const int64_t c0 = step * p_.depth, channels = std::min(p_.depth, c_.channels - c0);
      for (int64_t ch = 0; ch < channels; ++ch) gather(in + (c0 + ch) * c_.in.channel, buffer_ + ch * plane_);
      multiply(weights_ + (g * p_.steps + step) * c_.rows * p_.k_pitch, channels);
    }
    for (int64_t r = row_from(s0_); r < row_from(s1_); ++r)
      scatter(sums_ + (r - row_from(s0_)) * sums_pitch_, out + r * c_.out.channel);
  }

 private:
  static constexpr int64_t kL = kLanes<T>;

  int64_t row_from(int64_t sliver) const { return c_.rows * sliver / p_.slivers; }

  /// The offsets of the rows of a product: channels, and taps of each if the product does all of them.
  void find_offsets() {
    const Spatial one{1, 1, 1};
    for (int64_t ch = 0; ch < p_.depth; ++ch)
      each(p_.whole ? c_.taps.count : one, [&](const Spatial& t) {
        int64_t at = 0;
        for (size_t a = 0; a < 3; ++a) at = at * c_.in.size[a] + t[a] * c_.taps.gap[a];
        offsets_.push_back(ch * plane_ + at * kL);
      });
    offsets_.insert(offsets_.end(), static_cast<size_t>(kOffsetsAhead), offsets_.back());
  }

  void find_vectors() {
    const Spatial one{1, 1, 1};
    each(p_.whole ? one : c_.taps.count, [&](const Spatial& t) {
      TapVectors vectors;
      int64_t position = 0;
      each(c_.out.size, [&](const Spatial& o) {
        int64_t at = 0;
        bool inside = true;
        for (size_t a = 0; a < 3; ++a) {
          const int64_t x = o[a] * c_.step[a] + c_.taps.first[a] + t[a] * c_.taps.gap[a];
          inside = inside && x >= 0 && x < c_.in.size[a];
          at = at * c_.in.size[a] + x;
        }
        for (int64_t v = 0; inside && v < p_.block_vectors; ++v) {
          vectors.from.push_back((v * in_positions_ + at) * kL);
          vectors.to.push_back(v * sums_pitch_ / p_.block_vectors + position * kL);
        }
        ++position;
      });
      taps_.push_back(std::move(vectors));
    });
  }

  template <class F>
  static void each(const Spatial& n, const F& f) {
    for (int64_t i = 0; i < n[0]; ++i)
      for (int64_t j = 0; j < n[1]; ++j)
        for (int64_t k = 0; k < n[2]; ++k) f(Spatial{i, j, k});
  }

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
    call.k = p_.whole ? channels * product_of(c_.taps.count) : channels;
    call.a_rs = p_.k_pitch;
    call.offsets = offsets_.data();
    call.c_rs = sums_pitch_;
    call.accumulate = true;
    const auto used = static_cast<size_t>(divide_up(images_, kL));
    for (int64_t s = s0_; s < s1_; ++s) {
      const int64_t row = row_from(s), height = row_from(s + 1) - row;
      T* const to = sums_ + (row - row_from(s0_)) * sums_pitch_;
      const T* a = weights + row * p_.k_pitch;
      for (const TapVectors& tap : taps_) {
        const size_t count = tap.from.size();
        const auto block_vectors = static_cast<size_t>(p_.block_vectors);
        for (size_t v = 0; v < count;) {
          if (v % block_vectors >= used) {  // the last block may have fewer images
            ++v;
            continue;
          }
          const bool two = v + 1 < count && (v + 1) % block_vectors < used;
          const size_t next = two ? v + 1 : v;
          const T* const b[2] = {buffer_ + tap.from[v], buffer_ + tap.from[next]};
          T* const c[2] = {to + tap.to[v], to + tap.to[next]};
          patch_tile_of<T>(height, two ? 2 : 1)(call, a, b, c, nullptr);
          v += two ? 2 : 1;
        }
        a += channels;
      }
    }
  }

  /// Writes one row of the sums, which has vectors of images for each position.
  void scatter(const T* from, S* to) {
    const Spatial &n = c_.out.size, &space = c_.out.space;
    const bool adjacent =
        space[2] == 1 && (n[1] == 1 || space[1] == n[2]) && (n[0] == 1 || space[0] == n[1] * n[2]);
    for (int64_t v = 0; v * kL < images_; ++v, from += sums_pitch_ / p_.block_vectors) {
      const int64_t images = std::min(kL, images_ - v * kL);
      for (int64_t p = 0; p < out_positions_; p += kL) {
        transpose_columns(spare_, kL, from + p * kL, kL, kL);
        const int64_t count = std::min(kL, out_positions_ - p);
        for (int64_t i = 0; i < images; ++i) {
          S* const image = to + (v * kL + i) * c_.out.image;
          const T* const sums = spare_ + i * kL;
          if (adjacent) {
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
  const T* const weights_;
  const T* const bias_;
  const int64_t in_positions_, out_positions_;
  int64_t plane_ = 0, sums_pitch_ = 0;
  T *buffer_ = nullptr, *sums_ = nullptr, *spare_ = nullptr;
  std::vector<int64_t> offsets_;
  std::vector<TapVectors> taps_;
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
  parallel_for(p.image_blocks * c.groups * p.row_blocks, 1, [&](int64_t begin, int64_t end) {
    LanesTask<S, T> task(c, p, weights, c.bias != nullptr ? bias : nullptr);
    for (int64_t i = begin; i < end; ++i) task.run(i);
  });
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_LANES_INL_H_
