// Gradients of reductions. Results and their gradients are broadcast to the input's shape as views.
#include "operators/reduce_gradient.h"

#include <algorithm>
#include <cmath>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/scan.h"
#include "operators/select.h"

namespace mx::detail {

using kernels::ReduceOp;

namespace {

/// The reduced dimensions and the shape of the input.
class Cut {
 public:
  Cut(const GradientContext& g, const Shape& axes)
      : in_(g.input_shape(0)), axes_(normalize_axes(axes, in_.rank(), "gradient")) {}

  const Shape& axes() const { return axes_; }
  double count() const {
    double n = 1;
    for (int64_t axis : axes_) n *= static_cast<double>(in_[static_cast<int>(axis)]);
    return n;
  }
  /// Returns a result, with or without the reduced dimensions, with size 1 in their place.
  NDArray kept(const NDArray& result) const {
    if (result.rank() == in_.rank()) return result;
    Shape shape = in_;
    for (int64_t axis : axes_) shape[static_cast<int>(axis)] = 1;
    return result.reshape(shape);
  }
  NDArray wide(const NDArray& result) const { return kept(result).broadcast_to(in_); }

 private:
  const Shape& in_;
  Shape axes_;
};

template <class Attrs = ReduceAttrs>
Cut cut_of(const GradientContext& g) {
  return {g, g.attr<Attrs>().axes};
}

void gradient_sum(GradientContext& g) { g.set(0, cut_of<TotalAttrs>(g).wide(g.head())); }

void gradient_mean(GradientContext& g) {
  const Cut cut = cut_of<TotalAttrs>(g);
  g.set(0, cut.wide(g.head() * (1 / cut.count())));
}

/// Elements that equal the extreme share the gradient equally.
void gradient_extreme(GradientContext& g) {
  const Cut cut = cut_of(g);
  const NDArray chosen = g.input(0) == cut.kept(g.output());
  const NDArray number = sum(chosen, cut.axes(), true);
  g.set(0, where(chosen, cut.kept(g.head()) / number, 0));
}

void gradient_logsumexp(GradientContext& g) {
  const Cut cut = cut_of(g);
  // If the sum of exponentials is 0, the gradient is 0.
  const NDArray y = cut.kept(g.output());
  g.set(0, cut.kept(g.head()) * exp(g.input(0) - where(y == -kInfinity, 0, y)));
}

/// The derivative of each element is the product of the others: of those before it and those after it. A
/// division of the total product would fail for zeros.
void gradient_prod(GradientContext& g) {
  const Cut cut = cut_of<TotalAttrs>(g);
  const NDArray x = g.input(0).to(g.head().dtype());
  const Shape& axes = cut.axes();
  const auto others = [](const NDArray& a, int64_t axis) {
    return cumprod(a, axis, true) * cumprod(a, axis, true, true);
  };
  if (axes.empty()) return g.set(0, g.head());
  if (axes.rank() == 1) return g.set(0, cut.kept(g.head()) * others(x, axes[0]));
  // Several reduced dimensions are moved to the end and joined into one.
  Shape order, turned, back = Shape::filled(x.rank(), 0), joined;
  int64_t size = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) order.push_back(i);
  for (int64_t axis : order) joined.push_back(x.shape()[static_cast<int>(axis)]);
  for (int64_t axis : axes) {
    order.push_back(axis);
    size *= x.shape()[static_cast<int>(axis)];
  }
  joined.push_back(size);
  for (int i = 0; i < order.rank(); ++i) {
    turned.push_back(x.shape()[static_cast<int>(order[i])]);
    back[static_cast<int>(order[i])] = i;
  }
  const NDArray products = others(x.transpose(order).reshape(joined), -1);
  g.set(0, cut.kept(g.head()) * products.reshape(turned).transpose(back));
}

/// Returns x minus its mean over the axes. The second mean is what the type has rounded off the first, which
/// counts if the mean is large.
NDArray centred(const NDArray& x, const Cut& cut) {
  const NDArray near = x - mean(x, cut.axes(), true);
  return near - mean(near, cut.axes(), true);
}

/// Returns sign(x) for the elements whose magnitude equals the norm, divided by their number, and 0 for
/// others.
NDArray extreme_signs(const NDArray& x, const NDArray& y, const Cut& cut) {
  const NDArray chosen = abs(x) == y;
  return where(chosen, sign(x) / sum(chosen, cut.axes(), true), 0);
}

}  // namespace

NDArray with_reduced_dims(const GradientContext& g, const NDArray& result) { return cut_of(g).kept(result); }

ReduceGradient reduce_gradient(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return {gradient_sum, {}};
    case ReduceOp::mean:
      return {gradient_mean, {}};
    case ReduceOp::prod:
      return {gradient_prod, {.inputs = bit_set(0)}};
    case ReduceOp::max:
    case ReduceOp::min:
      return {gradient_extreme, {.inputs = bit_set(0), .outputs = bit_set(0)}};
    case ReduceOp::logsumexp:
      return {gradient_logsumexp, {.inputs = bit_set(0), .outputs = bit_set(0)}};
    default:
      return {};  // the results are indices, counts or bool
  }
}

void gradient_var(GradientContext& g) {
  const auto& attrs = g.attr<VarianceAttrs>();
  const Cut cut(g, attrs.axes);
  const double divisor = std::max(0.0, cut.count() - attrs.correction);
  g.set(0, cut.kept(g.head() * (2 / divisor)) * centred(g.input(0), cut));
}

void gradient_stddev(GradientContext& g) {
  const auto& attrs = g.attr<VarianceAttrs>();
  const Cut cut(g, attrs.axes);
  const double divisor = std::max(0.0, cut.count() - attrs.correction);
  // If all elements are equal, the gradient is 0.
  const NDArray y = where(g.output() == 0, kInfinity, g.output());
  g.set(0, cut.kept(g.head() / (y * divisor)) * centred(g.input(0), cut));
}

void gradient_norm(GradientContext& g) {
  const auto& attrs = g.attr<NormAttrs>();
  const double p = attrs.p;
  if (p == 0) return;  // the norm is a count
  const Cut cut(g, attrs.axes);
  const NDArray& x = g.input(0);
  const NDArray head = cut.kept(g.head());
  if (p == 1) return g.set(0, head * sign(x));
  const NDArray y = cut.kept(g.output());
  if (std::isinf(p)) return g.set(0, head * extreme_signs(x, y, cut));
  const NDArray nothing = y == 0;
  if (p == 2) return g.set(0, x * (head / where(nothing, kInfinity, y)));
  // sign(x) (|x| / y)^(p - 1), and 0 where x is 0, because the power may be infinite there.
  const NDArray size = where(x == 0, 1, abs(x) / where(nothing, 1, y));
  g.set(0, where(nothing, 0, head) * (sign(x) * pow(size, p - 1)));
}

}  // namespace mx::detail
