// Where the elements of a resampled axis come from, for the host and for GPUs.
//
// Element i of the result is the weighted sum of 1, 2 or 4 elements of x, its taps. Positions are those of
// PyTorch. The cubic weights: Keys, "Cubic convolution interpolation for digital image processing", 1981,
// with a = -3/4.
#pragma once

#include <cmath>
#include <cstdint>

namespace mx::formulas {

/// copied: element i is element i of x.
enum class ResampleMode : uint8_t { nearest, nearest_exact, linear, cubic, copied };

/// One axis: its size before and after resampling, and the distance of neighbouring results in x.
struct ResampleAxis {
  int64_t in = 1, out = 1;
  double step = 1;
  ResampleMode mode = ResampleMode::nearest;
  bool align_corners = false;

  constexpr bool nearest() const {
    return mode == ResampleMode::nearest || mode == ResampleMode::nearest_exact ||
           mode == ResampleMode::copied;
  }
  /// Taps of each element of the result.
  constexpr int taps() const { return nearest() ? 1 : mode == ResampleMode::linear ? 2 : 4; }
};

struct ResampleTap {
  int64_t place;  ///< in x
  double weight;
};

constexpr double cubic_weight(double distance) {
  constexpr double a = -0.75;
  const double d = distance < 0 ? -distance : distance;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

/// Returns tap t of element i of the result.
constexpr ResampleTap resample_tap(const ResampleAxis& axis, int64_t i, int t) {
  const int64_t last = axis.in - 1;
  if (axis.mode == ResampleMode::copied) return {i, 1};
  if (axis.nearest()) {
    // In float, as in PyTorch, so that the same element is chosen if the position is near a whole number.
    const float centre = axis.mode == ResampleMode::nearest_exact ? 0.5f : 0.f;
    const float position = (static_cast<float>(i) + centre) * static_cast<float>(axis.step);
    const int64_t place = static_cast<int64_t>(position);
    return {place < last ? place : last, 1};
  }
  const double step = axis.step, index = static_cast<double>(i);
  const double position = axis.align_corners ? step * index : step * (index + 0.5) - 0.5;
  if (axis.mode == ResampleMode::linear) {
    const double inside = position > 0 ? position : 0;
    const int64_t whole = static_cast<int64_t>(inside), low = whole < last ? whole : last;
    const double share = inside - static_cast<double>(low);
    if (t == 0) return {low, 1 - share};
    return {low < last ? low + 1 : last, share};
  }
  const double source = std::floor(position) + static_cast<double>(t - 1);
  const int64_t place = static_cast<int64_t>(source);
  return {place < 0 ? 0 : (place < last ? place : last), cubic_weight(position - source)};
}

struct ResampleRange {
  int64_t begin, end;
};

/// Returns a range of results that has all those with a tap at this place of x, and few others. `per_step` is
/// 1 / axis.step, or 0 if the step is 0.
constexpr ResampleRange resample_users(const ResampleAxis& axis, double per_step, int64_t place) {
  if (!(per_step > 0)) return {0, axis.out};
  const double before = axis.nearest() ? 0 : axis.mode == ResampleMode::linear ? 1 : 2;
  const double after = axis.nearest() ? 1 : before;
  const double at = static_cast<double>(place) + (axis.nearest() || axis.align_corners ? 0 : 0.5);
  // Some elements more, and a share that covers the rounding of positions in float.
  const double slack = 1e-6, most = static_cast<double>(axis.out);
  const double first = (at - before) * per_step * (1 - slack) - 3;
  const double end = (at + after) * per_step * (1 + slack) + 3;
  // Positions beyond the last element have their taps there.
  return {first > 0 ? static_cast<int64_t>(first < most ? first : most) : 0,
          place < axis.in - 1 && end < most ? static_cast<int64_t>(end) : axis.out};
}

}  // namespace mx::formulas
