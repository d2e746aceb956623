// Counting: how often numbers fall into bins.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "operators/operator.h"

namespace mx {

/// How often 0, 1, 2, ... come in x, an array of rank 1 of integers that are not negative: i64 (n,), where n
/// is one more than the largest, and at least `min_length`; as numpy.bincount. With weights, of x's shape,
/// the sums of those: of their type, or f64 for integers. Waits for x. Throws InvalidArgument for a negative
/// number.
NDArray bincount(const Arg& x, const NDArray& weights = {}, int64_t min_length = 0);

struct HistogramOptions {
  int64_t bins = 10;
  /// The ends of the first and the last bin; none: the smallest and the largest element, for which it waits.
  std::optional<std::pair<double, double>> range{};
  NDArray weights{};     ///< of x's shape
  bool density = false;  ///< divide by the total and by the widths of the bins
};
struct Histogram {
  NDArray counts;  ///< (bins,): i64; of the weights' type, for integers f64; with density a floating type
  NDArray edges;   ///< (bins + 1,), ascending: of x's type, f64 for integers, f32 for narrower types
};
/// How many elements of x, of any shape, are in each bin; as numpy.histogram. A bin holds its lower end and
/// not its upper one, but for the last bin, which holds both. What is outside the range, and NaN, is not
/// counted. Throws InvalidArgument for a range that is not finite (also one found in x) or not ascending.
Histogram histogram(const Arg& x, const HistogramOptions& options = {});
/// The same with bins between given edges, (bins + 1,), ascending. Waits for the edges.
Histogram histogram(const Arg& x, const NDArray& edges, const NDArray& weights = {}, bool density = false);

/// In which bin each element of x is: i with edges[i - 1] <= x < edges[i]; with `right` edges[i - 1] < x <=
/// edges[i]; 0 before the first edge, as many as there are edges behind the last. Of descending edges
/// edges[i - 1] > x >= edges[i], and with `right` edges[i - 1] >= x > edges[i]. i64 of x's shape, as
/// numpy.digitize (torch.bucketize means the opposite with `right`). Waits for the edges, and throws
/// InvalidArgument where they neither ascend nor descend.
NDArray digitize(const Arg& x, const NDArray& edges, bool right = false);

}  // namespace mx
