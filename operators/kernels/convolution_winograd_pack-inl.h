// Transforms the weights of convolutions by Winograd's method. Included once per instruction set.
#if defined(MX_CONVOLUTION_WINOGRAD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_WINOGRAD_PACK_INL_H_
#    undef MX_CONVOLUTION_WINOGRAD_PACK_INL_H_
#  else
#    define MX_CONVOLUTION_WINOGRAD_PACK_INL_H_
#  endif

#  include <algorithm>
#  include <cstdint>
#  include <cstdlib>
#  include <type_traits>

#  include "operators/kernels/convolution_winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

#  if HWY_TARGET != HWY_SCALAR

/// Transforms weights to `u`: [group][number][row][plane].
template <class S>
class WeightsTransform {
 public:
  static constexpr int64_t kL = kLanes<float>;

  WeightsTransform(const Correlation& c, const WinogradPlan& p, float* u)
      : c_(c),
        taps_(c),
        u_(u),
        pitch_(p.weights_pitch),
        number_(c.rows * p.weights_pitch),
        step_(c.taps.count[0] == 1 ? c.weights.channel : c.weights.tap[0]),
        by_rows_(std::abs(c.weights.row) < std::abs(step_) ||
                 (c.taps.count[0] != 1 && c.weights.channel != c.taps.count[0] * step_)),
        adjacent_(c.weights.tap[1] == 3 && c.weights.tap[2] == 1) {}

  /// Transforms blocks [begin, end) of kL rows, which are counted over all groups.
  void run(int64_t begin, int64_t end) {
    const int64_t row_blocks = divide_up(c_.rows, kL);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t g = block / row_blocks, r = block % row_blocks * kL, rows = std::min(kL, c_.rows - r);
      float* const to = u_ + g * kWinogradSize * number_ + r * pitch_;
      const S* const from =
          static_cast<const S*>(c_.weights.data) + g * c_.weights.group + r * c_.weights.row;
      const int64_t planes = winograd_planes(c_);
      for (int64_t plane = 0; plane < planes; plane += kL) {
        const int64_t count = std::min(kL, planes - plane);
        if (by_rows_) {
          square_by_rows(from, rows, plane, count, to + plane);
        } else {
          for (int64_t i = 0; i < rows; ++i)
            transform(from + plane * step_ + i * c_.weights.row, step_, count, to + plane + i * pitch_,
                      number_);
        }
      }
    }
  }

 private:
  /// Transforms `count` weights that are `step` apart to 16 vectors that are `number` apart. They are four
  /// times the usual numbers, because a half would round weights below the normal numbers.
  HWY_INLINE void transform(const S* from, int64_t step, int64_t count, float* to, int64_t number) {
    const Lanes<float> d;
    gather(from, step, count);
    WinogradVec rows[4][3];  // along the first axis
    for (int64_t j = 0; j < 3; ++j) {
      WinogradVec w[3];
      for (int64_t i = 0; i < 3; ++i) w[i] = hn::LoadU(d, gathered_ + taps_.of(i, j) * kL);
      const auto sum = hn::Add(w[0], w[2]);
      rows[0][j] = hn::Add(w[0], w[0]);
      rows[1][j] = hn::Add(sum, w[1]);
      rows[2][j] = hn::Sub(sum, w[1]);
      rows[3][j] = hn::Add(w[2], w[2]);
    }
    for (int i = 0; i < 4; ++i, to += 4 * number) {
      const auto sum = hn::Add(rows[i][0], rows[i][2]);
      hn::StoreU(hn::Add(rows[i][0], rows[i][0]), d, to);
      hn::StoreU(hn::Add(sum, rows[i][1]), d, to + number);
      hn::StoreU(hn::Sub(sum, rows[i][1]), d, to + 2 * number);
      hn::StoreU(hn::Add(rows[i][2], rows[i][2]), d, to + 3 * number);
    }
  }

  /// Copies the taps of `count` weights that are `step` apart to nine vectors.
  HWY_INLINE void gather(const S* from, int64_t step, int64_t count) {
    if constexpr (std::is_same_v<S, float>) {
      if (count == kL && adjacent_) return transpose_columns(gathered_, kL, from, step, 9);
    }
    std::fill_n(gathered_, 9 * kL, 0.F);
    for (int64_t tap = 0; tap < 9; ++tap)
      for (int64_t lane = 0; lane < count; ++lane)
        gathered_[tap * kL + lane] = widen<float>(from[lane * step + taps_.offset(tap)]);
  }

  /// Transforms vectors along rows, and turns them to vectors along planes.
  void square_by_rows(const S* from, int64_t rows, int64_t plane, int64_t count, float* to) {
    for (int64_t i = 0; i < count; ++i)
      transform(from + weights_of_plane(c_, plane + i), c_.weights.row, rows, square_ + i * kL, kL * kL);
    if (count < kL)
      for (int64_t n = 0; n < kWinogradSize; ++n)
        std::fill_n(square_ + n * kL * kL + count * kL, (kL - count) * kL, 0.F);
    for (int64_t n = 0; n < kWinogradSize; ++n)
      transpose_columns(to + n * number_, pitch_, square_ + n * kL * kL, kL, rows);
  }

  const Correlation& c_;
  const WinogradTaps taps_;
  float* const u_;
  const int64_t pitch_, number_;  // between rows, and between the 16 numbers
  const int64_t step_;            // between planes, if that is constant
  // Vectors go along the rows, where weights are nearer to each other than along planes, or evenly spaced.
  const bool by_rows_;
  const bool adjacent_;  // the taps of a weight lie one behind the other
  HWY_ALIGN float gathered_[9 * kL];
  HWY_ALIGN float square_[kWinogradSize * kL * kL];
};

#  endif

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_WINOGRAD_PACK_INL_H_
