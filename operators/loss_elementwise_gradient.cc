// The gradient of a loss with respect to x is one operator. The other gradients (targets, weights, second
// derivatives) are composed of operators as in their definition. Names are those of
// operators/kernels/elementwise_loss.h.
#include "operators/loss_elementwise_gradient.h"

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/select.h"

namespace mx::detail {
namespace {

using kernels::ElementwiseLoss;

struct Operands {
  const NDArray &x, &t;
  NDArray w;
  Operands(const GradientContext& g, size_t first) : x(g.input(first)), t(g.input(first + 1)) {
    if (g.inputs() > first + 2) w = g.input(first + 2);
  }
};

NDArray variance(const NDArray& p) { return maximum(p * (1 - p), p.dtype() == f16 ? 6e-8 : 1e-12); }
/// Returns (w - 1) y; an empty handle if there is no weight w.
NDArray beyond_one(const Operands& o, const NDArray& y) { return o.w.defined() ? (o.w - 1) * y : NDArray(); }
NDArray plus(const NDArray& a, const NDArray& b) { return b.defined() ? a + b : a; }
/// Returns y where the margin is violated, 0 elsewhere.
NDArray inside(const LossCall& c, const Operands& o, const NDArray& y) {
  return where(c.parameter - o.x * o.t > 0, y, 0);
}
/// Returns 1 where the loss is quadratic, 0 elsewhere.
NDArray near(const LossCall& c, const Operands& o) { return (abs(o.x - o.t) < c.parameter).to(o.x.dtype()); }

/// Returns d(loss)/dt; an empty handle for zero.
NDArray by_target(const LossCall& c, const Operands& o) {
  const auto& [x, t, w] = o;
  switch (c.loss) {
    case ElementwiseLoss::bce:
      return maximum(log1p(-x), -100) - maximum(log(x), -100);
    case ElementwiseLoss::bce_with_logits:
      return plus(-x, beyond_one(o, softplus(-x)));
    case ElementwiseLoss::kl_div: {
      const NDArray none = t == 0;
      return where(none, -x, log(where(none, 1, t)) + 1 - x);
    }
    case ElementwiseLoss::kl_div_log:
      return exp(t) * (t - x + 1);
    case ElementwiseLoss::hinge:
      return inside(c, o, -x);
    default:
      return {};
  }
}

/// Returns the second derivative in x; an empty handle for zero.
NDArray curvature(const LossCall& c, const Operands& o) {
  const auto& [x, t, w] = o;
  switch (c.loss) {
    case ElementwiseLoss::mse:
      return full({}, 2, x.dtype(), x.context());
    case ElementwiseLoss::huber:
      return near(c, o);
    case ElementwiseLoss::smooth_l1:
      return near(c, o) * (1 / c.parameter);
    case ElementwiseLoss::bce: {
      // The derivative of (x - t) / v, v = x (1 - x).
      const NDArray v = variance(x);
      return 1 / v - (x - t) * where(x * (1 - x) < v, 0, 1 - 2 * x) / square(v);
    }
    case ElementwiseLoss::bce_with_logits: {
      const NDArray s = sigmoid(x), bell = s * (1 - s);
      return plus(bell, beyond_one(o, t * bell));
    }
    default:
      return {};
  }
}

/// Returns the derivative of d(loss)/dx in t; an empty handle for zero.
NDArray slope_by_target(const LossCall& c, const Operands& o) {
  const auto& [x, t, w] = o;
  switch (c.loss) {
    case ElementwiseLoss::mse:
    case ElementwiseLoss::huber:
    case ElementwiseLoss::smooth_l1:
      return -curvature(c, o);
    case ElementwiseLoss::bce:
      return -1 / variance(x);
    case ElementwiseLoss::bce_with_logits:
      return plus(full({}, -1, x.dtype(), x.context()), beyond_one(o, -sigmoid(-x)));
    case ElementwiseLoss::kl_div:
      return full({}, -1, x.dtype(), x.context());
    case ElementwiseLoss::kl_div_log:
      return -exp(t);
    case ElementwiseLoss::hinge:
      return inside(c, o, full({}, -1, x.dtype(), x.context()));
    default:
      return {};
  }
}

/// Returns true if the loss is a function of x - t.
bool of_difference(ElementwiseLoss loss) { return loss <= ElementwiseLoss::smooth_l1; }

}  // namespace

double LossCall::divisor(const Shape& x) const {
  if (reduction == "mean") return static_cast<double>(x.numel());
  return reduction == "batchmean" ? static_cast<double>(x[0]) : 1;
}

void gradient_elementwise_loss(GradientContext& g, const LossCall& call) {
  const Operands o(g, 0);
  const bool difference = of_difference(call.loss);
  NDArray dx;
  if (g.wanted(0) || (g.wanted(1) && difference))
    dx = elementwise_loss_backward(call, g.head(), o.x, o.t, o.w);
  if (g.wanted(0)) g.set(0, dx);
  if (g.wanted(1) && difference) g.set(1, -dx);
  const NDArray scale = call.each() ? g.head() : g.head() / call.divisor(o.x.shape());
  if (g.wanted(1) && !difference)
    if (const NDArray slope = by_target(call, o); slope.defined()) g.set(1, scale * slope);
  if (g.inputs() > 2 && g.wanted(2)) g.set(2, scale * (o.t * softplus(-o.x)));
}

void gradient_elementwise_loss_backward(GradientContext& g, const LossCall& call) {
  const Operands o(g, 1);
  const double divisor = call.divisor(o.x.shape());
  if (g.wanted(0)) {
    const LossCall each{call.loss, call.parameter, "none"};
    const NDArray slopes = elementwise_loss_backward(each, g.head(), o.x, o.t, o.w);
    g.set(0, call.each() ? slopes : sum(slopes) / divisor);
  }
  const NDArray scale = g.head() * (call.each() ? g.input(0) : g.input(0) / divisor);
  if (g.wanted(1))
    if (const NDArray slope = curvature(call, o); slope.defined()) g.set(1, scale * slope);
  if (g.wanted(2))
    if (const NDArray slope = slope_by_target(call, o); slope.defined()) g.set(2, scale * slope);
  if (g.inputs() > 3 && g.wanted(3)) g.set(3, scale * (-o.t * sigmoid(-o.x)));
}

}  // namespace mx::detail
