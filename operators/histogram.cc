#include "operators/histogram.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx {
namespace {

DType weight_sum_type(const NDArray& weights) {
  return !weights.defined() ? i64 : is_floating(weights.dtype()) ? weights.dtype() : f64;
}

/// Returns the sums of the weights at the places 0 .. count - 1; without weights each weight is 1.
NDArray totals_at(const NDArray& places, const NDArray& weights, int64_t count, std::source_location where) {
  const Context context = places.context();
  const DType type = weight_sum_type(weights);
  NDArray totals = zeros({count}, type, context, where);
  const NDArray added = weights.defined() ? weights.to(type, where) : ones(places.shape(), type, context);
  return index_add({totals, where}, places, added, 0);
}

/// Returns true if the edges ascend, false if they descend. Throws InvalidArgument if they do neither, or if
/// they descend and `may_descend` is false.
bool edges_ascend(const char* op, const NDArray& edges, bool may_descend) {
  MX_CHECK(edges.rank() == 1, InvalidArgument, "[", op, "] expected edges of rank 1, got shape ",
           edges.shape());
  const auto ordered = [](const auto& list) {
    const auto wrong = [](auto a, auto b) { return !(a <= b); };  // true if one is NaN
    if (std::adjacent_find(list.begin(), list.end(), wrong) == list.end()) return 1;
    const auto wrong_down = [](auto a, auto b) { return !(a >= b); };
    return std::adjacent_find(list.begin(), list.end(), wrong_down) == list.end() ? -1 : 0;
  };
  const int order =
      is_floating(edges.dtype()) ? ordered(edges.to_vector<double>()) : ordered(edges.to_vector<int64_t>());
  MX_CHECK(order > 0 || (order < 0 && may_descend), InvalidArgument, "[", op, "] expected edges in ascending",
           may_descend ? " or descending" : "", " order, got ",
           order < 0 ? "descending ones" : "unsorted ones");
  return order > 0;
}

Histogram count_between(const Arg& x, const NDArray& edges, const NDArray& weights, bool density) {
  const int64_t bins = edges.numel() - 1;
  const NDArray values = x.array.reshape({x.array.numel()}, x.where);
  if (weights.defined())
    MX_CHECK(weights.shape() == x.array.shape(), InvalidArgument,
             "[histogram] expected weights of x's shape ", x.array.shape(), ", got ", weights.shape());
  // Bin i is counted at place i + 1. Places 0 and bins + 1 count the elements outside of the range. NaN sorts
  // last, so it is counted at bins + 1.
  NDArray place = searchsorted({edges, x.where}, values, true);
  const NDArray last = edges.select(0, bins);
  place = mx::where(equal({values, x.where}, last.to(promote(values.dtype(), edges.dtype()))), bins, place);
  const NDArray flat = weights.defined() ? weights.reshape({weights.numel()}, x.where) : NDArray();
  NDArray counts = totals_at(place, flat, bins + 2, x.where).slice(0, {1, bins + 1});
  if (!density) return {counts.clone(x.where), edges};
  const DType type = is_floating(counts.dtype()) ? counts.dtype() : edges.dtype();
  const NDArray width = sub(edges.slice(0, {1, {}}), edges.slice(0, {0, bins})).to(type);
  return {div({counts.to(type, x.where), x.where}, mul(width, sum(counts).to(type))), edges};
}

/// Returns the type of the edges: x's type, but f32 for narrower types, and f64 for integers.
DType edge_type(DType type) { return is_floating(type) ? promote(type, f32) : f64; }

}  // namespace

NDArray bincount(const Arg& x, const NDArray& weights, IntArg min_length) try {
  const NDArray& values = x.array;
  MX_CHECK(values.rank() == 1 && !is_floating(values.dtype()), InvalidArgument,
           "[bincount] expected an array of integers of rank 1, got ", values.dtype(), ' ', values.shape());
  MX_CHECK(min_length >= 0, InvalidArgument, "[bincount] expected a min_length of 0 or more, got ",
           min_length);
  MX_CHECK(!weights.defined() || weights.shape() == values.shape(), InvalidArgument,
           "[bincount] expected weights of x's shape ", values.shape(), ", got ",
           weights.defined() ? weights.shape() : Shape());
  int64_t count = min_length;
  if (values.numel() > 0) {
    const auto smallest = min(x).item<int64_t>(), largest = max(x).item<int64_t>();
    MX_CHECK(smallest >= 0, InvalidArgument, "[bincount] expected numbers of 0 or more, got ", smallest);
    MX_CHECK(largest < INT64_MAX, InvalidArgument, "[bincount] expected numbers below 2^63 - 1, got ",
             largest);
    count = std::max(count, largest + 1);
  }
  return totals_at(values.to(i64, x.where), weights, count, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

Histogram histogram(const Arg& x, const HistogramOptions& options) try {
  MX_CHECK(options.bins > 0 && options.bins < INT64_MAX, InvalidArgument,
           "[histogram] expected 1 bin or more, fewer than 2^63 - 1, got ", options.bins);
  double low = 0, high = 1;
  if (options.range) {
    low = options.range->first;
    high = options.range->second;
  } else if (x.array.numel() > 0) {
    low = min(x).to(f64).item<double>();
    high = max(x).to(f64).item<double>();
  }
  MX_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, InvalidArgument,
           "[histogram] expected a finite range, low <= high, got from ", low, " to ", high);
  if (low == high) {  // as in NumPy: a range around the only value
    low -= 0.5;
    high += 0.5;
  }
  const NDArray edges =
      linspace(low, high, options.bins + 1, edge_type(x.array.dtype()), x.array.context(), x.where);
  return count_between(x, edges, options.weights, options.density);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

Histogram histogram(const Arg& x, const NDArray& edges, const NDArray& weights, bool density) try {
  edges_ascend("histogram", edges, false);
  MX_CHECK(edges.numel() >= 2, InvalidArgument, "[histogram] expected 2 edges or more, got ", edges.numel());
  return count_between(x, edges.to(edge_type(edges.dtype()), x.where), weights, density);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray digitize(const Arg& x, const NDArray& edges, bool right) try {
  if (edges_ascend("digitize", edges, true)) return searchsorted({edges, x.where}, x.array, !right);
  const NDArray place = searchsorted({flip(edges).clone(), x.where}, x.array, !right);
  return sub({edges.numel(), x.where}, place);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
