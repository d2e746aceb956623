#include "operators/quantile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx {
namespace {

/// x with the reduced dimensions joined into the last one, and the shape of the result.
struct Cells {
  NDArray values;
  Shape kept;  // the result's shape
  std::source_location where;

  DType type() const { return is_floating(values.dtype()) ? promote(values.dtype(), f32) : f64; }
  /// The elements that sorting each cell would put at `places`, whose shape broadcasts to that of the result.
  NDArray at(const NDArray& places) const {
    Shape shape = values.shape();
    shape[shape.rank() - 1] = places.shape().back();
    const NDArray indices = argselect({values, where}, places.broadcast_to(shape));
    return gather({values, where}, indices, -1).to(type(), where);
  }
};

Cells cells_of(const char* op, const Arg& x, const Axes& axes, bool keep_dims) {
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
  return {turned.reshape(outer, x.where), kept, x.where};
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
  const NDArray between = mx::where(logical_and(isinf(low), low == high), low, lerp(low, high, weight));
  if (!weight.is_array()) return between;
  return mx::where(weight.array() == 0.5, low * 0.5 + high * 0.5, between);
}

using Shares = std::span<const double>;

/// Returns one array for each share.
std::vector<NDArray> quantiles_of(const Cells& cells, Shares shares, Interpolation how) {
  const int64_t count = cells.values.shape().back();
  std::vector<NDArray> results;
  if (count == 0) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    results.assign(shares.size(), full(cells.kept, nan, cells.type(), cells.values.context(), cells.where));
    return results;
  }
  std::vector<Between> between;
  std::vector<int64_t> places = {count - 1};  // NaN if there is one: sorting puts NaN last
  for (double q : shares) {
    between.push_back(place_between(q * static_cast<double>(count - 1), count, how));
    places.push_back(between.back().low);
    places.push_back(between.back().high);
  }
  const NDArray found = cells.at(array(places).to(cells.values.context(), cells.where));
  const NDArray last = found.select(-1, 0);
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto at = static_cast<int64_t>(2 * i + 1);
    NDArray result = found.select(-1, at);
    if (between[i].weight > 0) result = mixed(result, found.select(-1, at + 1), between[i].weight);
    results.push_back(mx::where(isnan(last), last, result).reshape(cells.kept, cells.where));
  }
  return results;
}

/// The same without the NaNs, which sorting would put last. Each cell has a different number of NaNs, so the
/// places are arrays here.
std::vector<NDArray> nanquantiles_of(const Cells& cells, Shares shares, Interpolation how) {
  const NDArray& x = cells.values;
  if (x.shape().back() == 0 || shares.empty()) return quantiles_of(cells, shares, how);
  const NDArray last = maximum(count_nonzero(logical_not(isnan(x)), -1, true) - 1, 0).to(f64);
  std::vector<NDArray> places, weights;
  for (double q : shares) {
    const NDArray position = last * q;
    // At a whole position both are the same element: the next one could be infinite, and 0 * inf is NaN.
    NDArray low = floor(position), high = ceil(position), weight = position - low;
    if (how == Interpolation::nearest) low = high = round(position);
    if (how == Interpolation::lower) high = low;
    if (how == Interpolation::higher) low = high = ceil(position);
    if (how == Interpolation::midpoint) weight = mx::where(weight > 0, 0.5, zeros_like(weight));
    places.push_back(low);
    places.push_back(high);
    weights.push_back(weight.to(cells.type()));
  }
  const NDArray found = cells.at(concat(places, -1, cells.where).to(i64));
  const bool mixes = how == Interpolation::midpoint || how == Interpolation::linear;
  std::vector<NDArray> results;
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto at = static_cast<int64_t>(2 * i);
    const NDArray low = found.select(-1, at);
    const NDArray result = mixes ? mixed(low, found.select(-1, at + 1), weights[i].select(-1, 0)) : low;
    results.push_back(result.reshape(cells.kept, cells.where));
  }
  return results;
}

using QuantilesOf = std::vector<NDArray> (*)(const Cells&, Shares, Interpolation);

/// Returns the function that ignores NaN, which only floating-point types have.
QuantilesOf without_nan(const Arg& x) {
  return is_floating(x.array.dtype()) ? nanquantiles_of : quantiles_of;
}

void check_share(const char* op, double q) {
  MX_CHECK(q >= 0 && q <= 1, InvalidArgument, "[", op, "] expected q from 0 to 1, got ", q);
}

NDArray one_quantile(const char* op, QuantilesOf find, const Arg& x, double q, const Axes& axes,
                     bool keep_dims, Interpolation how) try {
  check_share(op, q);
  return find(cells_of(op, x, axes, keep_dims), {&q, 1}, how)[0].to(quantile_type(x.array.dtype()), x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray several_quantiles(const char* op, QuantilesOf find, const Arg& x, const std::vector<double>& q,
                          const Axes& axes, bool keep_dims, Interpolation how) try {
  for (double share : q) check_share(op, share);
  const Cells cells = cells_of(op, x, axes, keep_dims);
  const DType type = quantile_type(x.array.dtype());
  if (q.empty()) {
    Shape nothing = cells.kept;
    nothing.insert(0, 0);
    return zeros(nothing, type, x.array.context(), x.where);
  }
  return stack(find(cells, q, how), 0, x.where).to(type, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

/// Returns the share that a percentage stands for.
double share_of(double percentage) {
  MX_CHECK(percentage >= 0 && percentage <= 100, InvalidArgument,
           "[percentile] expected q from 0 to 100, got ", percentage);
  return percentage / 100;
}

}  // namespace

NDArray median(const Arg& x, const Axes& axes, bool keep_dims) {
  return one_quantile("median", quantiles_of, x, 0.5, axes, keep_dims, Interpolation::linear);
}
NDArray nanmedian(const Arg& x, const Axes& axes, bool keep_dims) {
  return one_quantile("nanmedian", without_nan(x), x, 0.5, axes, keep_dims, Interpolation::linear);
}
NDArray detail::quantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how) {
  return one_quantile("quantile", quantiles_of, x, q, axes, keep_dims, how);
}
NDArray detail::nanquantile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how) {
  return one_quantile("nanquantile", without_nan(x), x, q, axes, keep_dims, how);
}
NDArray quantile(const Arg& x, const std::vector<double>& q, const Axes& axes, bool keep_dims,
                 Interpolation how) {
  return several_quantiles("quantile", quantiles_of, x, q, axes, keep_dims, how);
}
NDArray nanquantile(const Arg& x, const std::vector<double>& q, const Axes& axes, bool keep_dims,
                    Interpolation how) {
  return several_quantiles("nanquantile", without_nan(x), x, q, axes, keep_dims, how);
}
NDArray detail::percentile_at(const Arg& x, double q, const Axes& axes, bool keep_dims, Interpolation how) {
  return one_quantile("percentile", quantiles_of, x, share_of(q), axes, keep_dims, how);
}
NDArray percentile(const Arg& x, const std::vector<double>& q, const Axes& axes, bool keep_dims,
                   Interpolation how) {
  std::vector<double> shares(q.size());
  std::transform(q.begin(), q.end(), shares.begin(), share_of);
  return several_quantiles("percentile", quantiles_of, x, shares, axes, keep_dims, how);
}

}  // namespace mx
