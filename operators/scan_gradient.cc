// Gradients of scans. Those of products and of log-sum-exp are linear recurrences in the opposite direction
// of the scan. They do not divide by an element and do not subtract from a total, so they are correct for
// zeros, infinities and large numbers, in derivatives of any order.
#include "operators/scan_gradient.h"

#include <algorithm>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/scan.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx::detail {

using kernels::ScanOp;

namespace {

/// The axis and direction of a scan.
struct Way {
  int axis;
  int64_t n;
  bool exclusive, reverse;

  Way(const GradientContext& g, int64_t along, bool without, bool from_end)
      : axis(normalize_axis(along, std::max(g.input_shape(0).rank(), 1), "gradient")),
        n(g.input_shape(0).rank() == 0 ? 1 : g.input_shape(0)[axis]),
        exclusive(without),
        reverse(from_end) {}
  explicit Way(const GradientContext& g)
      : Way(g, g.attr<ScanAttrs>().axis, g.attr<ScanAttrs>().exclusive, g.attr<ScanAttrs>().reverse) {}

  /// In the direction of the scan, before(x)[i] is x[i - 1] and behind(x)[i] is x[i + 1]; `fill` where there
  /// is no such element.
  NDArray before(const NDArray& x, double fill = 0) const { return shifted(x, !reverse, fill); }
  NDArray behind(const NDArray& x, double fill = 0) const { return shifted(x, reverse, fill); }
  /// rest() returns all elements but the first, start() all but the last.
  NDArray rest(const NDArray& x) const { return x.slice(axis, reverse ? Slice{0, n - 1} : Slice{1, n}); }
  NDArray start(const NDArray& x) const { return x.slice(axis, reverse ? Slice{1, n} : Slice{0, n - 1}); }
  /// Returns y[i] = a[i] y[i + 1] + b[i], against the direction of the scan.
  NDArray back(const NDArray& a, const NDArray& b) const { return linear_recurrence(a, b, axis, !reverse); }

 private:
  NDArray shifted(const NDArray& x, bool up, double fill) const {
    std::vector<int64_t> widths(2 * static_cast<size_t>(x.rank()), 0);
    widths[2 * static_cast<size_t>(axis) + (up ? 0 : 1)] = 1;
    return pad(x.slice(axis, up ? Slice{0, n - 1} : Slice{1, n}), widths, PadMode::constant, fill);
  }
};

/// Handles a scan of rank 0 or of no elements; returns false for others. A scan of one element is that
/// element, or if exclusive the neutral element.
bool of_number(GradientContext& g, const Way& way) {
  if (g.input_shape(0).rank() > 0 && g.input_shape(0).numel() > 0) return false;
  if (!way.exclusive) g.set(0, g.head());
  return true;
}

void gradient_cumsum(GradientContext& g) {
  const Way way(g);
  g.set(0, cumsum(g.head(), way.axis, way.exclusive, !way.reverse));
}

// The gradient of element i is the product of the elements before it, times
// head[i] + x[i + 1] (head[i + 1] + x[i + 2] (..)).
void gradient_cumprod(GradientContext& g) {
  const Way way(g);
  if (of_number(g, way)) return;
  const NDArray &head = g.head(), &y = g.output();
  const NDArray factors = way.behind(g.input(0));
  g.set(0,
        way.exclusive ? y * way.back(factors, way.behind(head)) : way.before(y, 1) * way.back(factors, head));
}

// As for products, with the factors exp(y[i] - y[i + 1]): the share of y[i] in y[i + 1].
void gradient_logcumsumexp(GradientContext& g) {
  const Way way(g);
  if (of_number(g, way)) return;
  const NDArray &x = g.input(0), &y = g.output(), &head = g.head();
  // If a total is -infinity, the gradients of its elements through it are 0.
  const NDArray total = where(y == -kInfinity, 0, y), next = way.behind(total, kInfinity);
  const NDArray shares = exp(y - next);
  g.set(0, way.exclusive ? exp(x - next) * way.back(way.behind(shares), way.behind(head))
                         : exp(x - total) * way.back(shares, head));
}

// The gradient goes to the last of the elements that equal the extreme so far.
template <bool kLargest>
void gradient_extreme(GradientContext& g) {
  const Way way(g);
  if (of_number(g, way)) return;
  const Shape& shape = g.input_shape(0);
  const NDArray x = way.exclusive ? way.start(g.input(0)) : g.input(0);
  const NDArray y = way.exclusive ? way.rest(g.output()) : g.output();
  const NDArray head = way.exclusive ? way.rest(g.head()) : g.head();
  const int64_t first = way.exclusive && way.reverse ? 1 : 0, n = x.shape()[way.axis];
  Shape along = Shape::filled(shape.rank(), 1);
  along[way.axis] = n;
  const NDArray places = arange(first, first + n, 1, i64, head.context()).reshape(along);
  const NDArray found = where(x == y, places, way.reverse ? way.n - 1 : 0);
  const NDArray sources =
      way.reverse ? cummin(found, way.axis, false, true) : cummax(found, way.axis, false, false);
  g.set(0, scatter(zeros_view(shape, head.dtype(), head.context()), sources, head, way.axis, Scatter::add));
}

}  // namespace

ScanGradient scan_gradient(ScanOp op) {
  constexpr GradientUses kBoth{.inputs = bit_set(0), .outputs = bit_set(0)};
  switch (op) {
    case ScanOp::cumsum:
      return {gradient_cumsum, {}};
    case ScanOp::cumprod:
      return {gradient_cumprod, kBoth};
    case ScanOp::cummax:
      return {gradient_extreme<true>, kBoth};
    case ScanOp::cummin:
      return {gradient_extreme<false>, kBoth};
    case ScanOp::logcumsumexp:
      return {gradient_logcumsumexp, kBoth};
  }
  return {};
}

// The total gradient of y[i], which is also that of b[i], is head[i] plus a[i + 1] times the total gradient
// of y[i + 1].
void gradient_linear_recurrence(GradientContext& g) {
  const auto& attrs = g.attr<RecurrenceAttrs>();
  const Way way(g, attrs.axis, false, attrs.reverse);
  if (g.input_shape(0).rank() == 0 || g.input_shape(0).numel() == 0) {
    if (g.wanted(1)) g.set(1, g.head());
    return;
  }
  const NDArray back = way.back(way.behind(g.input(0)), g.head());
  if (g.wanted(0)) g.set(0, back * way.before(g.output()));
  if (g.wanted(1)) g.set(1, back);
}

}  // namespace mx::detail
