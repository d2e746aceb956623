#include "operators/nan_reductions.h"

#include <limits>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/select.h"

namespace mx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

/// Returns x with NaN replaced by `value`. The gradient there is 0.
NDArray without_nan(const Arg& x, double value) { return mx::where({isnan(x), x.where}, value, x.array); }

/// Returns the type in which elements are summed: a sum of f16 has the range of f32.
DType sum_type(DType type) { return promote(type, f32); }

/// Returns the number of elements that are not NaN, in a type that the sum can be divided by.
NDArray count_of_numbers(const Arg& x, const Axes& axes, bool keep_dims) {
  return count_nonzero({logical_not({isnan(x), x.where}), x.where}, axes, keep_dims);
}

NDArray mean_of_numbers(const Arg& x, const Axes& axes, bool keep_dims) {
  const DType wide = sum_type(x.array.dtype());
  const NDArray total = sum({without_nan(x, 0), x.where}, axes, keep_dims, wide);
  return div({total, x.where}, count_of_numbers(x, axes, keep_dims).to(wide, x.where));
}

/// Returns the extreme of the elements that are not NaN; NaN where there are none.
NDArray extreme(NDArray (*choose)(const Arg&, const Axes&, bool), double worst, const Arg& x,
                const Axes& axes, bool keep_dims) {
  const NDArray found = choose({without_nan(x, worst), x.where}, axes, keep_dims);
  const NDArray nothing = all({isnan(x), x.where}, axes, keep_dims);
  return mx::where({nothing, x.where}, kNotANumber, found);
}

}  // namespace

NDArray nansum(const Arg& x, const Axes& axes, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return sum(x, axes, keep_dims);
  return sum({without_nan(x, 0), x.where}, axes, keep_dims);
}

NDArray nanprod(const Arg& x, const Axes& axes, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return prod(x, axes, keep_dims);
  return prod({without_nan(x, 1), x.where}, axes, keep_dims);
}

NDArray nanmean(const Arg& x, const Axes& axes, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return mean(x, axes, keep_dims);
  return mean_of_numbers(x, axes, keep_dims).to(x.array.dtype(), x.where);
}

NDArray nanmax(const Arg& x, const Axes& axes, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return max(x, axes, keep_dims);
  return extreme([](const Arg& a, const Axes& d, bool keep) { return max(a, d, keep); }, -kInf, x, axes,
                 keep_dims);
}

NDArray nanmin(const Arg& x, const Axes& axes, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return min(x, axes, keep_dims);
  return extreme([](const Arg& a, const Axes& d, bool keep) { return min(a, d, keep); }, kInf, x, axes,
                 keep_dims);
}

// Returns the index of the first element that equals the extreme. If NaN were replaced by -inf, argmax could
// return the index of a NaN where all numbers are -inf.
NDArray nanargmax(const Arg& x, const Axes& axes, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return argmax(x, axes, keep_dims);
  const NDArray largest = nanmax(x, axes, true);
  return argmax({equal({x.array, x.where}, largest), x.where}, axes, keep_dims);
}

NDArray nanargmin(const Arg& x, const Axes& axes, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return argmin(x, axes, keep_dims);
  const NDArray smallest = nanmin(x, axes, true);
  return argmax({equal({x.array, x.where}, smallest), x.where}, axes, keep_dims);
}

NDArray nanvar(const Arg& x, const Axes& axes, double correction, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return var(x, axes, correction, keep_dims);
  const DType wide = sum_type(x.array.dtype());
  // NaNs are replaced before any computation; otherwise their gradient would be 0 times NaN.
  const NDArray values = without_nan(x, 0).to(wide, x.where);
  const NDArray distance = mx::where({isnan(x), x.where}, 0, values - mean_of_numbers(x, axes, true));
  const NDArray total = sum({square({distance, x.where}), x.where}, axes, keep_dims);
  const NDArray count = maximum(count_of_numbers(x, axes, keep_dims).to(wide, x.where) - correction, 0);
  return div({total, x.where}, count).to(x.array.dtype(), x.where);
}

NDArray nanstd(const Arg& x, const Axes& axes, double correction, bool keep_dims) {
  if (!is_floating(x.array.dtype())) return stddev(x, axes, correction, keep_dims);
  return sqrt({nanvar(x, axes, correction, keep_dims), x.where});
}

}  // namespace mx
