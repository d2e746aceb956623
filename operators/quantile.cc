#include "operators/quantile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx {
namespace {

/// x with the reduced dimensions joined into the last one and sorted along it, and the shape of the result.
struct SortedCells {
  NDArray values;  // in the type of the computation
  Shape kept;      // the result's shape
  std::source_location where;
};

SortedCells sorted_cells(const char* op, const Arg& x, const Axes& axes, bool keep_dims) {
  const Shape& shape = x.array.shape();
  const Shape reduced = normalize_axes(axes, shape.rank(), op);
  Shape order, outer, kept;
  int64_t count = 1;
  for (int d = 0, next = 0; d < shape.rank(); ++d) {
    if (next < reduced.rank() && reduced[next] == d) {
      ++next;
      count *= shape[d];
      if (keep_dims) kept.push_back(1);
      continue;
    }
    order.push_back(d);
    outer.push_back(shape[d]);
    kept.push_back(shape[d]);
  }
  for (int64_t d : reduced) order.push_back(d);
  outer.push_back(count);
  const NDArray turned = shape.rank() == 0 ? x.array : x.array.transpose(order);
  const NDArray cells = sort({turned.reshape(outer, x.where), x.where}, -1);
  const DType type = x.array.dtype();
  return {cells.to(is_floating(type) ? promote(type, f32) : f64, x.where), kept, x.where};
}

DType quantile_type(DType type) { return is_floating(type) ? type : f32; }

/// A position between two sorted elements: the result is x[low] + weight * (x[high] - x[low]).
struct Between {
  int64_t low, high;
  double weight;
};

Between place_between(double position, int64_t count, Interpolation how) {
  const double floor = std::floor(position), fraction = position - floor;
  const auto low = static_cast<int64_t>(floor), high = std::min(low + 1, count - 1);
  switch (how) {
    case Interpolation::lower:
      return {low, low, 0};
    case Interpolation::higher:
      return fraction > 0 ? Between{high, high, 0} : Between{low, low, 0};
    case Interpolation::nearest: {
      const auto nearest = static_cast<int64_t>(std::nearbyint(position));  // ties to even
      return {nearest, nearest, 0};
    }
    case Interpolation::midpoint:
      return {low, high, fraction > 0 ? 0.5 : 0};
    case Interpolation::linear:
      break;
  }
  return {low, high, fraction};
}

/// Returns low + weight * (high - low). Between equal infinities it is that infinity, not NaN. The weight 1/2
/// has a separate formula, which cannot overflow.
NDArray mixed(const NDArray& low, const NDArray& high, const Operand& weight) {
  if (!weight.is_array() && weight.number().real() == 0.5) return low * 0.5 + high * 0.5;
  return mx::where(logical_and(isinf(low), low == high), low, lerp(low, high, weight));
}

NDArray quantile_of(const SortedCells& cells, double q, Interpolation how) {
  const NDArray& x = cells.values;
  const int64_t count = x.shape().back();
  if (count == 0)
    return full(cells.kept, std::numeric_limits<double>::quiet_NaN(), x.dtype(), x.context(), cells.where);
  const Between at = place_between(q * static_cast<double>(count - 1), count, how);
  NDArray result = x.select(-1, at.low);
  if (at.weight > 0) result = mixed(result, x.select(-1, at.high), at.weight);
  const NDArray last = x.select(-1, count - 1);  // NaN if there is one: sorting puts NaN last
  return mx::where(isnan(last), last, result).reshape(cells.kept, cells.where);
}

/// The same without the NaNs, which sorting has put last. Each cell has a different number of NaNs, so the
/// positions are arrays here.
NDArray nanquantile_of(const SortedCells& cells, double q, Interpolation how) {
  const NDArray& x = cells.values;
  if (x.shape().back() == 0) return quantile_of(cells, q, how);
  const NDArray last = maximum(count_nonzero(logical_not(isnan(x)), -1, true) - 1, 0);
  const NDArray position = last.to(f64) * q;
  NDArray low = floor(position), high = minimum(low + 1, last.to(f64)), weight = position - low;
  if (how == Interpolation::nearest) low = high = round(position);
  if (how == Interpolation::lower) high = low;
  if (how == Interpolation::higher) low = high = ceil(position);
  NDArray result = gather(x, low.to(i64), -1);
  if (how == Interpolation::midpoint) weight = mx::where(weight > 0, 0.5, zeros_like(weight));
  if (how == Interpolation::midpoint || how == Interpolation::linear)
    result = mixed(result, gather(x, high.to(i64), -1), weight.to(x.dtype()));
  return result.reshape(cells.kept, cells.where);
}

using QuantileOf = NDArray (*)(const SortedCells&, double, Interpolation);

void check_share(const char* op, double q) {
  MX_CHECK(q >= 0 && q <= 1, InvalidArgument, "[", op, "] expected q from 0 to 1, got ", q);
}

NDArray one_quantile(const char* op, QuantileOf find, const Arg& x, double q, const Axes& axes,
                     bool keep_dims, Interpolation how) {
  check_share(op, q);
  return find(sorted_cells(op, x, axes, keep_dims), q, how).to(quantile_type(x.array.dtype()), x.where);
}

NDArray several_quantiles(const char* op, QuantileOf find, const Arg& x, const std::vector<double>& q,
                          const Axes& axes, bool keep_dims, Interpolation how) {
  for (double share : q) check_share(op, share);
  const SortedCells cells = sorted_cells(op, x, axes, keep_dims);
  const DType type = quantile_type(x.array.dtype());
  if (q.empty()) {
    Shape nothing = cells.kept;
    nothing.insert(0, 0);
    return zeros(nothing, type, x.array.context(), x.where);
  }
  std::vector<NDArray> results;
  for (double share : q) results.push_back(find(cells, share, how));
  return stack(results, 0, x.where).to(type, x.where);
}

/// Returns the share that a percentage stands for.
double share_of(double percentage) {
  MX_CHECK(percentage >= 0 && percentage <= 100, InvalidArgument,
           "[percentile] expected q from 0 to 100, got ", percentage);
  return percentage / 100;
}

}  // namespace

NDArray median(const Arg& x, const Axes& axes, bool keep_dims) {
  return one_quantile("median", quantile_of, x, 0.5, axes, keep_dims, Interpolation::linear);
}
NDArray nanmedian(const Arg& x, const Axes& axes, bool keep_dims) {
  const QuantileOf find = is_floating(x.array.dtype()) ? nanquantile_of : quantile_of;
  return one_quantile("nanmedian", find, x, 0.5, axes, keep_dims, Interpolation::linear);
}
NDArray detail::quantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how) {
  return one_quantile("quantile", quantile_of, x, q, axes, keep_dims, how);
}
NDArray detail::nanquantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how) {
  const QuantileOf find = is_floating(x.array.dtype()) ? nanquantile_of : quantile_of;
  return one_quantile("nanquantile", find, x, q, axes, keep_dims, how);
}
NDArray quantile(const Arg& x, const std::vector<double>& q, const Axes& axes, bool keep_dims,
                 Interpolation how) {
  return several_quantiles("quantile", quantile_of, x, q, axes, keep_dims, how);
}
NDArray nanquantile(const Arg& x, const std::vector<double>& q, const Axes& axes, bool keep_dims,
                    Interpolation how) {
  const QuantileOf find = is_floating(x.array.dtype()) ? nanquantile_of : quantile_of;
  return several_quantiles("nanquantile", find, x, q, axes, keep_dims, how);
}
NDArray detail::percentile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how) {
  return one_quantile("percentile", quantile_of, x, share_of(q), axes, keep_dims, how);
}
NDArray percentile(const Arg& x, const std::vector<double>& q, const Axes& axes, bool keep_dims,
                   Interpolation how) {
  std::vector<double> shares(q.size());
  std::transform(q.begin(), q.end(), shares.begin(), share_of);
  return several_quantiles("percentile", quantile_of, x, shares, axes, keep_dims, how);
}

}  // namespace mx
