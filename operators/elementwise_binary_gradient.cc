// Gradients of functions of two operands. At kinks they are PyTorch's: equals share the gradient of maximum
// and minimum, and the first operand has that of fmax and fmin. Nothing divides by 0 on the way to a
// derivative that is 0, in first and in higher order.
#include <numbers>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_gradient.h"
#include "operators/elementwise_unary.h"
#include "operators/select.h"

namespace mx::detail {

using kernels::BinaryOp;

namespace {

using G = GradientContext;

constexpr GradientUses kNothing{}, kBoth{.inputs = 3}, kCrosswise{.inputs = 3, .crosswise = true},
    kSecond{.inputs = 2}, kBothAndResult{.inputs = 3, .outputs = 1};

/// -x for the gradient of input i; summed first where that is less work.
NDArray negative(const G& g, size_t i, const NDArray& x) { return -sum_to(x, g.input_shape(i)); }

void gradient_add(G& g) {
  if (g.wanted(0)) g.set(0, g.head());
  if (g.wanted(1)) g.set(1, g.head());
}

void gradient_sub(G& g) {
  if (g.wanted(0)) g.set(0, g.head());
  if (g.wanted(1)) g.set(1, negative(g, 1, g.head()));
}

void gradient_mul(G& g) {
  if (g.wanted(0)) g.set(0, g.head() * g.input(1));
  if (g.wanted(1)) g.set(1, g.head() * g.input(0));
}

void gradient_div(G& g) {
  const NDArray part = g.head() / g.input(1);
  if (g.wanted(0)) g.set(0, part);
  if (g.wanted(1)) g.set(1, negative(g, 1, part * g.output()));
}

void gradient_mod(G& g) {
  if (g.wanted(0)) g.set(0, g.head());
  if (g.wanted(1)) g.set(1, negative(g, 1, g.head() * floor_div(g.input(0), g.input(1))));
}

void gradient_fmod(G& g) {
  if (g.wanted(0)) g.set(0, g.head());
  // (The quotient is whole but for rounding.)
  if (g.wanted(1)) g.set(1, negative(g, 1, g.head() * round((g.input(0) - g.output()) / g.input(1))));
}

void gradient_pow(G& g) {
  const NDArray &a = g.input(0), &b = g.input(1);
  if (g.wanted(0)) {
    // b a^(b - 1); 0, and not 0 times infinity, where both are 0.
    const NDArray exponent = where(logical_and(a == 0, b == 0), 0, b - 1);
    g.set(0, g.head() * (b * pow(a, exponent)));
  }
  if (g.wanted(1)) {
    // a^b log(a), which goes to 0 with a.
    const NDArray base = where(logical_and(a == 0, b >= 0), 1, a.to(g.head().dtype()));
    g.set(1, g.head() * (g.output() * log(base)));
  }
}

template <bool kLarger>
void gradient_extreme(G& g) {
  const NDArray &a = g.input(0), &b = g.input(1);
  const NDArray shared = where(a == b, g.head() * 0.5, g.head());
  if (g.wanted(0)) g.set(0, where(kLarger ? a < b : a > b, 0, shared));
  if (g.wanted(1)) g.set(1, where(kLarger ? a > b : a < b, 0, shared));
}

template <bool kLarger>
void gradient_number_extreme(G& g) {
  const NDArray &a = g.input(0), &b = g.input(1);
  const NDArray first = logical_or(kLarger ? a >= b : a <= b, isnan(b));
  if (g.wanted(0)) g.set(0, where(first, g.head(), 0));
  if (g.wanted(1)) g.set(1, where(first, 0, g.head()));
}

void gradient_atan2(G& g) {
  const NDArray &y = g.input(0), &x = g.input(1);
  const NDArray length = hypot(y, x);
  // 0 at the origin.
  const NDArray divisor = where(length == 0, kInfinity, length), part = g.head() / divisor;
  if (g.wanted(0)) g.set(0, part * (x / divisor));
  if (g.wanted(1)) g.set(1, negative(g, 1, part * (y / divisor)));
}

void gradient_hypot(G& g) {
  const NDArray divisor = where(g.output() == 0, kInfinity, g.output());
  if (g.wanted(0)) g.set(0, g.head() * (g.input(0) / divisor));
  if (g.wanted(1)) g.set(1, g.head() * (g.input(1) / divisor));
}

void gradient_copysign(G& g) {
  if (g.wanted(0)) g.set(0, g.head() * (sign(g.input(0)) * copysign(1, g.input(1))));
}

void gradient_logaddexp(G& g) {
  const NDArray &a = g.input(0), &b = g.input(1);
  // Of exp(a) + exp(b) = 0 neither has a part.
  const NDArray none = g.output() == -kInfinity;
  if (g.wanted(0)) g.set(0, g.head() * sigmoid(where(none, -kInfinity, a - b)));
  if (g.wanted(1)) g.set(1, g.head() * sigmoid(where(none, -kInfinity, b - a)));
}

// Derivatives of activations: linear in the first operand.

void gradient_relu_backward(G& g) {
  if (g.wanted(0)) g.set(0, relu_backward(g.head(), g.input(1)));
}

void gradient_tanh_backward(G& g) {
  const NDArray &dy = g.input(0), &y = g.input(1);
  if (g.wanted(0)) g.set(0, tanh_backward(g.head(), y));
  if (g.wanted(1)) g.set(1, g.head() * dy * (y * -2));
}

void gradient_sigmoid_backward(G& g) {
  const NDArray &dy = g.input(0), &y = g.input(1);
  if (g.wanted(0)) g.set(0, sigmoid_backward(g.head(), y));
  if (g.wanted(1)) g.set(1, g.head() * dy * (1 - y * 2));
}

void gradient_silu_backward(G& g) {
  const NDArray &dy = g.input(0), &x = g.input(1);
  if (g.wanted(0)) g.set(0, silu_backward(g.head(), x));
  if (!g.wanted(1)) return;
  const NDArray s = sigmoid(x);
  g.set(1, g.head() * dy * (s * (1 - s) * (x * (1 - s * 2) + 2)));
}

void gradient_gelu_backward(G& g) {
  const NDArray &dy = g.input(0), &x = g.input(1);
  if (g.wanted(0)) g.set(0, gelu_backward(g.head(), x));
  if (!g.wanted(1)) return;
  constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const NDArray xx = square(x);
  g.set(1, g.head() * dy * (exp(xx * -0.5) * (2 - xx) * kDensity));
}

void gradient_gelu_tanh_backward(G& g) {
  const NDArray &dy = g.input(0), &x = g.input(1);
  if (g.wanted(0)) g.set(0, gelu_tanh_backward(g.head(), x));
  if (!g.wanted(1)) return;
  // Of x sigmoid(z(x)), z = k (x + c x^3).
  constexpr double k = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi, c = 0.044715;
  const NDArray xx = square(x), s = sigmoid((xx * c + 1) * x * k);
  const NDArray first = xx * (3 * c * k) + k, second = x * (6 * c * k);
  g.set(1, g.head() * dy * (s * (1 - s) * (first * 2 + x * ((1 - s * 2) * square(first) + second))));
}

void gradient_binary_cross_entropy(G& g) {
  const NDArray &x = g.input(0), &target = g.input(1);
  // PyTorch's bound, where the type has it.
  const double least = g.head().dtype() == f16 ? 6e-8 : 1e-12;
  if (g.wanted(0)) g.set(0, g.head() * ((x - target) / maximum(x * (1 - x), least)));
  if (g.wanted(1)) g.set(1, g.head() * (maximum(log1p(-x), -100) - maximum(log(x), -100)));
}

}  // namespace

ElementwiseGradient binary_gradient(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return {gradient_add, kNothing};
    case BinaryOp::sub:
      return {gradient_sub, kNothing};
    case BinaryOp::mul:
      return {gradient_mul, kCrosswise};
    case BinaryOp::div:
      return {gradient_div, {.inputs = 2, .outputs = 1}};
    case BinaryOp::floor_div:
      return {zero_gradient, kNothing};
    case BinaryOp::mod:
      return {gradient_mod, kBoth};
    case BinaryOp::fmod:
      return {gradient_fmod, kBothAndResult};
    case BinaryOp::pow:
      return {gradient_pow, kBothAndResult};
    case BinaryOp::maximum:
      return {gradient_extreme<true>, kBoth};
    case BinaryOp::minimum:
      return {gradient_extreme<false>, kBoth};
    case BinaryOp::fmax:
      return {gradient_number_extreme<true>, kBoth};
    case BinaryOp::fmin:
      return {gradient_number_extreme<false>, kBoth};
    case BinaryOp::atan2:
      return {gradient_atan2, kBoth};
    case BinaryOp::hypot:
      return {gradient_hypot, kBothAndResult};
    case BinaryOp::copysign:
      return {gradient_copysign, kBoth};
    case BinaryOp::logaddexp:
      return {gradient_logaddexp, kBothAndResult};
    case BinaryOp::relu_backward:
      return {gradient_relu_backward, kSecond};
    case BinaryOp::tanh_backward:
      return {gradient_tanh_backward, kBoth};
    case BinaryOp::sigmoid_backward:
      return {gradient_sigmoid_backward, kBoth};
    case BinaryOp::silu_backward:
      return {gradient_silu_backward, kBoth};
    case BinaryOp::gelu_backward:
      return {gradient_gelu_backward, kBoth};
    case BinaryOp::gelu_tanh_backward:
      return {gradient_gelu_tanh_backward, kBoth};
    case BinaryOp::binary_cross_entropy:
      return {gradient_binary_cross_entropy, kBoth};
    default:
      return {};  // results that are not floating point, and nextafter, which is no function of numbers
  }
}

}  // namespace mx::detail
