// Counts of numbers in bins.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

#include "operators/operator.h"

namespace mx {

/// Counts the occurrences of 0, 1, 2, ... in x, a vector of non-negative integers, as numpy.bincount. The
/// result is i64 (n,), where n is one more than the largest element, and at least `min_length`. With weights
/// of x's shape, the result holds sums of weights instead, in their type, or in f64 for integer weights.
/// Waits for x. Throws InvalidArgument for a negative number.
NDArray bincount(const Arg& x, const NDArray& weights = {}, IntArg min_length = 0);

struct HistogramOptions {
  IntArg bins = 10;
  /// The lower end of the first bin and the upper end of the last one. If empty, the smallest and the largest
  /// element; the call then waits for x.
  std::optional<std::pair<double, double>> range{};
  NDArray weights{};     ///< of x's shape
  bool density = false;  ///< divide by the total and by the widths of the bins
};
struct Histogram {
  NDArray counts;  ///< (bins,): i64; with weights their type, f64 for integers; with density floating point
  NDArray edges;   ///< (bins + 1,), ascending: x's type, but f64 for integers and f32 for f16 and bf16
};
/// Counts the elements of x, of any shape, in each bin, as numpy.histogram. A bin includes its lower end and
/// excludes its upper end; the last bin includes both. Elements outside of the range and NaN are not counted.
/// Throws InvalidArgument for a range that is not finite (also one found in x) or not ascending.
Histogram histogram(const Arg& x, const HistogramOptions& options = {});
/// histogram(x, 4), histogram(x, 4, {{0, 1}}). A template so that a list in braces means options.
template <std::integral T>
requires(!std::same_as<T, bool>) Histogram
    histogram(const Arg& x, T bins, const std::optional<std::pair<double, double>>& range = {}) {
  return histogram(x, HistogramOptions{.bins = bins, .range = range});
}
/// The same with bins between the given edges, (bins + 1,), ascending. Waits for the edges.
Histogram histogram(const Arg& x, const NDArray& edges, const NDArray& weights = {}, bool density = false);

/// Returns the bin of each element of x, i64 of x's shape, as numpy.digitize. Bin i holds
///   for ascending edges   edges[i - 1] <= x < edges[i], with `right` edges[i - 1] < x <= edges[i];
///   for descending edges  edges[i - 1] > x >= edges[i], with `right` edges[i - 1] >= x > edges[i].
/// The bin is 0 before the first edge, and the number of edges after the last one. The `right` of
/// torch.bucketize has the opposite meaning. Waits for the edges. Throws InvalidArgument if the edges neither
/// ascend nor descend.
NDArray digitize(const Arg& x, const NDArray& edges, bool right = false);

}  // namespace mx
