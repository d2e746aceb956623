// Copies weights into the order in which the tiles of convolutions read them. Included once per instruction
// set.
#if defined(MX_CONVOLUTION_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_PACK_INL_H_
#    undef MX_CONVOLUTION_PACK_INL_H_
#  else
#    define MX_CONVOLUTION_PACK_INL_H_
#  endif

#  include <algorithm>
#  include <cstdint>
#  include <vector>

#  include "ndarray/kernels/parallel.h"
#  include "operators/kernels/convolution_plan.h"
#  include "operators/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// For each group and step of `depth` channels: rows of `pitch` elements, which are channels of taps, or taps
/// of channels if `tap_major`.
struct WeightLayout {
  int64_t depth, steps, pitch;
  bool tap_major;
};

/// Return whether the taps of a channel, and the channels of a row, lie one behind the other.
inline bool has_adjacent_taps(const Correlation& c) {
  const Spatial& n = c.taps.count;
  const Weights& w = c.weights;
  return w.tap[2] == 1 && (n[1] == 1 || w.tap[1] == n[2]) && (n[0] == 1 || w.tap[0] == n[1] * n[2]);
}
inline bool has_adjacent_rows(const Correlation& c) {
  return has_adjacent_taps(c) && c.weights.channel == product_of(c.taps.count);
}

template <class S, class T>
void pack_weights(const Correlation& c, const WeightLayout& layout, T* to) {
  constexpr int64_t kRows = 64, kBlockRows = 8, kBlockChannels = 16;
  const int64_t row_blocks = divide_up(c.rows, kRows), taps = product_of(c.taps.count);
  const Spatial& n = c.taps.count;
  const Weights& w = c.weights;
  const bool rows_adjacent = has_adjacent_rows(c) && (!layout.tap_major || taps == 1);
  std::vector<int64_t> offsets;  // of the taps in the weights
  for (int64_t i = 0; i < n[0]; ++i)
    for (int64_t j = 0; j < n[1]; ++j)
      for (int64_t k = 0; k < n[2]; ++k) offsets.push_back(i * w.tap[0] + j * w.tap[1] + k * w.tap[2]);
  const int64_t items = c.groups * layout.steps * row_blocks;
  const int64_t grain = std::max<int64_t>(1, (32 << 10) / std::max<int64_t>(1, layout.depth * taps * kRows));
  parallel_for(items, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t block = item % row_blocks, step = item / row_blocks % layout.steps;
      const int64_t g = item / row_blocks / layout.steps;
      const int64_t first = step * layout.depth, channels = std::min(layout.depth, c.channels - first);
      const int64_t r0 = block * kRows, r1 = std::min(c.rows, r0 + kRows);
      T* const out = to + (g * layout.steps + step) * c.rows * layout.pitch;
      const S* const from = static_cast<const S*>(w.data) + g * w.group + first * w.channel;
      if (rows_adjacent) {
        for (int64_t r = r0; r < r1; ++r)
          read_run(out + r * layout.pitch, from + r * w.row, 1, channels * taps);
        continue;
      }
      const int64_t tap_gap = layout.tap_major ? channels : 1, channel_gap = layout.tap_major ? 1 : taps;
      // In small blocks: rows of either side may be a power of two apart, so that few of their lines fit into
      // the cache.
      for (int64_t r_first = r0; r_first < r1; r_first += kBlockRows)
        for (int64_t ch_first = 0; ch_first < channels; ch_first += kBlockChannels)
          for (int64_t r = r_first; r < std::min(r1, r_first + kBlockRows); ++r)
            for (int64_t ch = ch_first; ch < std::min(channels, ch_first + kBlockChannels); ++ch) {
              T* const at = out + r * layout.pitch + ch * channel_gap;
              const S* const tap = from + ch * w.channel + r * w.row;
              for (int64_t t = 0; t < taps; ++t)
                at[t * tap_gap] = widen<T>(tap[offsets[static_cast<size_t>(t)]]);
            }
    }
  });
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_PACK_INL_H_
