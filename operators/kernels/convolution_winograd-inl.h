// Helpers of the kernels that compute convolutions and their gradients by Winograd's method: they transform
// images, find taps, and check that numbers are finite. Included once per instruction set.
#if defined(MX_CONVOLUTION_WINOGRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_WINOGRAD_INL_H_
#    undef MX_CONVOLUTION_WINOGRAD_INL_H_
#  else
#    define MX_CONVOLUTION_WINOGRAD_INL_H_
#  endif

#  include <algorithm>
#  include <cstdint>
#  include <vector>

#  include "operators/kernels/convolution_image-inl.h"
#  include "operators/kernels/convolution_tile-inl.h"
#  include "operators/kernels/convolution_winograd_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

#  if HWY_TARGET != HWY_SCALAR

using WinogradVec = hn::Vec<Lanes<float>>;

/// The offsets of rows of a tile's operand B that are `pitch` elements apart.
inline std::vector<int64_t> even_offsets(int64_t depth, int64_t pitch) {
  std::vector<int64_t> offsets;
  for (int64_t k = 0; k < depth + kOffsetsAhead; ++k) offsets.push_back(std::min(k, depth - 1) * pitch);
  return offsets;
}

/// Splits 2 * kLanes<float> adjacent elements into those at even and at odd places.
HWY_INLINE void load_pairs(const float* from, WinogradVec& even, WinogradVec& odd) {
  const Lanes<float> d;
  const auto low = hn::LoadU(d, from), high = hn::LoadU(d, from + kLanes<float>);
  even = hn::ConcatEven(d, high, low);
  odd = hn::ConcatOdd(d, high, low);
}

/// Four elements along an axis of a tile to four numbers.
HWY_INLINE void transform_image(const WinogradVec& d0, const WinogradVec& d1, const WinogradVec& d2,
                                const WinogradVec& d3, WinogradVec (&to)[4]) {
  to[0] = hn::Sub(d0, d2);
  to[1] = hn::Add(d1, d2);
  to[2] = hn::Sub(d2, d1);
  to[3] = hn::Sub(d1, d3);
}

/// The taps of 3 x 3 weights, numbered as they lie in memory.
struct WinogradTaps {
  bool backward[2];  // the taps read the elements of an image from the last to the first
  int64_t step[2];   // between taps in memory

  explicit WinogradTaps(const Correlation& c)
      : backward{c.taps.gap[1] < 0, c.taps.gap[2] < 0}, step{c.weights.tap[1], c.weights.tap[2]} {}
  /// The tap that reads element (i, j) of the 3 x 3 that belong to a result.
  int64_t of(int64_t i, int64_t j) const { return (backward[0] ? 2 - i : i) * 3 + (backward[1] ? 2 - j : j); }
  int64_t offset(int64_t tap) const { return tap / 3 * step[0] + tap % 3 * step[1]; }
};

/// Keeps whether all numbers seen were finite.
class FiniteCheck {
 public:
  // GCC compiles a constructor that is not written here without the instruction set.
  HWY_INLINE FiniteCheck() : sum_(hn::Zero(Lanes<float>())) {}
  HWY_INLINE void see(const WinogradVec& v) { sum_ = hn::MulAdd(v, hn::Zero(Lanes<float>()), sum_); }
  bool all_finite() const {
    const Lanes<float> d;
    return hn::AllTrue(d, hn::Eq(sum_, hn::Zero(d)));
  }

 private:
  WinogradVec sum_;
};

#  endif

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_WINOGRAD_INL_H_
