// Gradients of functions of two operands. At kinks they are PyTorch's: equal operands of maximum, minimum,
// fmax and fmin share the gradient. If a derivative is 0, its computation does not divide by 0, in first and
// in higher order.
#include <cmath>
#include <limits>
#include <numbers>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_gradient.h"
#include "operators/elementwise_unary.h"
#include "operators/number.h"
#include "operators/select.h"

namespace mx::detail {

using kernels::BinaryOp;

namespace {

constexpr GradientUses kNothing{}, kBoth{.inputs = bit_set(0, 1)},
    kCrosswise{.inputs = bit_set(0, 1), .crosswise = true}, kSecond{.inputs = bit_set(1)},
    kBothAndResult{.inputs = bit_set(0, 1), .outputs = bit_set(0)};

/// The gradient of a call with two operands, of which one may be a number: one formula serves both forms.
class PairGradient {
 public:
  explicit PairGradient(GradientContext& context) : context_(context) {}
  PairGradient(GradientContext& context, const NumberAttrs& attrs)
      : context_(context), number_(&attrs.number), array_(attrs.left ? 1 : 0) {}

  const NDArray& head() const { return context_.head(); }
  const NDArray& output() const { return context_.output(); }
  /// Returns true if the gradient of operand i is needed; never for the number.
  bool wanted(size_t i) const {
    return number_ == nullptr ? context_.wanted(i) : i == array_ && context_.wanted(0);
  }
  bool is_number(size_t i) const { return number_ != nullptr && i != array_; }
  const Scalar& number() const { return *number_; }
  Operand input(size_t i) const {
    if (is_number(i)) return *number_;
    return array(i);
  }
  /// Returns operand i of a call with two arrays, or the only array.
  const NDArray& array(size_t i) const { return context_.input(number_ == nullptr ? i : 0); }
  const Shape& input_shape(size_t i) const { return context_.input_shape(number_ == nullptr ? i : 0); }
  void set(size_t i, const NDArray& gradient) { context_.set(number_ == nullptr ? i : 0, gradient); }

 private:
  GradientContext& context_;
  const Scalar* number_ = nullptr;
  size_t array_ = 0;  // index of the operand that is the array
};

/// Returns -x for the gradient of input i. It is summed to the shape of the input first, which is less work.
NDArray negative(const PairGradient& g, size_t i, const NDArray& x) { return -sum_to(x, g.input_shape(i)); }

void gradient_add(PairGradient& g) {
  if (g.wanted(0)) g.set(0, g.head());
  if (g.wanted(1)) g.set(1, g.head());
}

void gradient_sub(PairGradient& g) {
  if (g.wanted(0)) g.set(0, g.head());
  if (g.wanted(1)) g.set(1, negative(g, 1, g.head()));
}

void gradient_mul(PairGradient& g) {
  if (g.wanted(0)) g.set(0, g.head() * g.input(1));
  if (g.wanted(1)) g.set(1, g.head() * g.input(0));
}

void gradient_div(PairGradient& g) {
  const NDArray part = g.head() / g.input(1);
  if (g.wanted(0)) g.set(0, part);
  if (g.wanted(1)) g.set(1, negative(g, 1, part * g.output()));
}

void gradient_mod(PairGradient& g) {
  if (g.wanted(0)) g.set(0, g.head());
  if (g.wanted(1)) g.set(1, negative(g, 1, g.head() * floor_div(g.input(0), g.input(1))));
}

void gradient_fmod(PairGradient& g) {
  if (g.wanted(0)) g.set(0, g.head());
  // The quotient is an integer except for rounding errors.
  if (g.wanted(1)) g.set(1, negative(g, 1, g.head() * round((g.input(0) - g.output()) / g.input(1))));
}

// b a^(b - 1) for a number b.
void gradient_pow_number(PairGradient& g) {
  const Scalar& b = g.number();
  if (b.real() == 0) return g.set(0, zeros_like(g.head()));
  if (b.real() == 1) return g.set(0, g.head());
  const NDArray& a = g.array(0);
  const bool whole = !b.floating() && b.fits() && b.integer() != INT64_MIN;
  const Scalar less = whole ? Scalar(b.integer() - 1) : Scalar(b.real() - 1);
  g.set(0, g.head() * ((less.real() == 1 ? a : pow(a, less)) * b));
}

// a^b log(a) for a number a. It goes to 0 with a if b is not negative.
void gradient_number_pow(PairGradient& g) {
  const double a = g.number().real();
  const NDArray part = g.head() * g.output();
  g.set(1, a == 0 ? part * where(g.array(1) >= 0, 0., -kInfinity) : part * std::log(a));
}

/// Returns the smallest number of which the type can hold the inverse.
double least_with_inverse(DType dtype) {
  if (dtype == f64) return 1 / std::numeric_limits<double>::max();
  return dtype == f16 ? 1. / 65504 : 1. / std::numeric_limits<float>::max();
}

void gradient_pow(PairGradient& g) {
  if (g.is_number(1) && g.wanted(0)) return gradient_pow_number(g);
  if (g.is_number(0) && g.wanted(1)) return gradient_number_pow(g);
  if (!g.wanted(0) && !g.wanted(1)) return;
  const NDArray &a = g.array(0), &b = g.array(1);
  if (g.wanted(0)) {
    // b a^(b - 1). If b is 0, and a is 0 or so near that 1 / a overflows, the exponent 0 makes it 0 instead
    // of 0 times infinity.
    const double least = least_with_inverse(a.dtype());
    const NDArray exponent = where(logical_and(abs(a) <= least, b == 0), 0, b - 1);
    g.set(0, g.head() * (b * pow(a, exponent)));
  }
  if (g.wanted(1)) {
    // a^b log(a), which goes to 0 with a; base 1 makes it 0 there instead of 0 times infinity.
    const NDArray base = where(logical_and(a == 0, b >= 0), 1, a.to(g.head().dtype()));
    g.set(1, g.head() * (g.output() * log(base)));
  }
}

template <bool kLarger>
void gradient_extreme(PairGradient& g) {
  const Operand a = g.input(0), b = g.input(1);
  const NDArray shared = where(a == b, g.head() * 0.5, g.head());
  if (g.wanted(0)) g.set(0, where(kLarger ? a < b : a > b, 0, shared));
  if (g.wanted(1)) g.set(1, where(kLarger ? a > b : a < b, 0, shared));
}

template <bool kLarger>
void gradient_number_extreme(PairGradient& g) {
  const Operand a = g.input(0), b = g.input(1);
  NDArray first = kLarger ? a > b : a < b;
  if (b.is_array()) {
    first = logical_or(first, isnan(b.array()));
  } else if (std::isnan(b.number().real())) {
    first = ones_like(first);
  }
  const NDArray equal = a == b, shared = where(equal, g.head() * 0.5, g.head());
  if (g.wanted(0)) g.set(0, where(logical_or(first, equal), shared, 0));
  if (g.wanted(1)) g.set(1, where(first, 0, shared));
}

void gradient_atan2(PairGradient& g) {
  const Operand y = g.input(0), x = g.input(1);
  const NDArray length = hypot(y, x);
  // The gradient at the origin is 0.
  const NDArray divisor = where(length == 0, kInfinity, length), part = g.head() / divisor;
  if (g.wanted(0)) g.set(0, part * (x / divisor));
  if (g.wanted(1)) g.set(1, negative(g, 1, part * (y / divisor)));
}

void gradient_hypot(PairGradient& g) {
  const NDArray divisor = where(g.output() == 0, kInfinity, g.output());
  if (g.wanted(0)) g.set(0, g.head() * (g.input(0) / divisor));
  if (g.wanted(1)) g.set(1, g.head() * (g.input(1) / divisor));
}

void gradient_copysign(PairGradient& g) {
  if (!g.wanted(0)) return;
  const NDArray slope = sign(g.array(0));
  if (g.is_number(1)) {
    g.set(0, std::signbit(g.number().real()) ? -(g.head() * slope) : g.head() * slope);
  } else {
    g.set(0, g.head() * (slope * copysign(1, g.array(1))));
  }
}

void gradient_logaddexp(PairGradient& g) {
  const Operand a = g.input(0), b = g.input(1);
  // If exp(a) + exp(b) is 0, both gradients are 0.
  const NDArray none = g.output() == -kInfinity;
  if (g.wanted(0)) g.set(0, g.head() * sigmoid(where(none, -kInfinity, a - b)));
  if (g.wanted(1)) g.set(1, g.head() * sigmoid(where(none, -kInfinity, b - a)));
}

// Derivatives of activations. They are linear in the first operand.

void gradient_relu_backward(PairGradient& g) {
  if (g.wanted(0)) g.set(0, relu_backward(g.head(), g.input(1)));
}

void gradient_tanh_backward(PairGradient& g) {
  if (g.wanted(0)) g.set(0, tanh_backward(g.head(), g.input(1)));
  if (!g.wanted(1)) return;
  const NDArray& y = g.array(1);
  g.set(1, g.head() * g.input(0) * (y * -2));
}

void gradient_sigmoid_backward(PairGradient& g) {
  if (g.wanted(0)) g.set(0, sigmoid_backward(g.head(), g.input(1)));
  if (!g.wanted(1)) return;
  const NDArray& y = g.array(1);
  g.set(1, g.head() * g.input(0) * (1 - y * 2));
}

void gradient_silu_backward(PairGradient& g) {
  if (g.wanted(0)) g.set(0, silu_backward(g.head(), g.input(1)));
  if (!g.wanted(1)) return;
  const NDArray& x = g.array(1);
  const NDArray s = sigmoid(x);
  g.set(1, g.head() * g.input(0) * (s * (1 - s) * (x * (1 - s * 2) + 2)));
}

void gradient_gelu_backward(PairGradient& g) {
  if (g.wanted(0)) g.set(0, gelu_backward(g.head(), g.input(1)));
  if (!g.wanted(1)) return;
  const NDArray& x = g.array(1);
  constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const NDArray xx = square(x);
  g.set(1, g.head() * g.input(0) * (exp(xx * -0.5) * (2 - xx) * kDensity));
}

void gradient_gelu_tanh_backward(PairGradient& g) {
  if (g.wanted(0)) g.set(0, gelu_tanh_backward(g.head(), g.input(1)));
  if (!g.wanted(1)) return;
  const NDArray& x = g.array(1);
  // The second derivative of x sigmoid(z(x)), z = k (x + c x^3).
  constexpr double k = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi, c = 0.044715;
  const NDArray xx = square(x), s = sigmoid((xx * c + 1) * x * k);
  const NDArray first = xx * (3 * c * k) + k, second = x * (6 * c * k);
  g.set(1, g.head() * g.input(0) * (s * (1 - s) * (first * 2 + x * ((1 - s * 2) * square(first) + second))));
}

void gradient_binary_cross_entropy(PairGradient& g) {
  // PyTorch's lower bound 1e-12, if the type can represent it.
  const double least = g.head().dtype() == f16 ? 6e-8 : 1e-12;
  if (g.wanted(0)) {
    const NDArray& x = g.array(0);
    g.set(0, g.head() * ((x - g.input(1)) / maximum(x * (1 - x), least)));
  }
  if (!g.wanted(1)) return;
  if (g.is_number(0)) {
    const double x = g.number().real();
    const auto limited = [](double log) { return log < -100 ? -100 : log; };
    g.set(1, g.head() * (limited(std::log1p(-x)) - limited(std::log(x))));
  } else {
    const NDArray& x = g.array(0);
    g.set(1, g.head() * (maximum(log1p(-x), -100) - maximum(log(x), -100)));
  }
}

template <void (*F)(PairGradient&)>
void with_arrays(GradientContext& context) {
  PairGradient g(context);
  F(g);
}
template <void (*F)(PairGradient&)>
void with_number(GradientContext& context) {
  PairGradient g(context, context.attr<NumberAttrs>());
  F(g);
}

// Values that the gradient of the array reads if the other operand is a number: the array, or the array and
// the result, for a number on the right and for a number on the left.
constexpr GradientUses kOfArray{.inputs = bit_set(0)},
    kOfArrayAndResult{.inputs = bit_set(0), .outputs = bit_set(0)};

template <const GradientUses& kRight, const GradientUses& kLeft>
GradientUses uses_by_side(const Attrs& attrs) {
  return attrs.get<NumberAttrs>().left ? kLeft : kRight;
}

template <void (*F)(PairGradient&), const GradientUses& kRight = kNothing, const GradientUses& kLeft = kRight>
BinaryGradients gradients_of(const GradientUses& arrays) {
  return {{with_arrays<F>, arrays}, with_number<F>, uses_by_side<kRight, kLeft>};
}

}  // namespace

BinaryGradients binary_gradient(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return gradients_of<gradient_add>(kNothing);
    case BinaryOp::sub:
      return gradients_of<gradient_sub>(kNothing);
    case BinaryOp::mul:
      return gradients_of<gradient_mul>(kCrosswise);
    case BinaryOp::div:
      return gradients_of<gradient_div, kNothing, kOfArrayAndResult>(
          {.inputs = bit_set(1), .outputs = bit_set(0)});
    case BinaryOp::floor_div:
      return {{zero_gradient, kNothing}, zero_gradient, uses_by_side<kNothing, kNothing>};
    case BinaryOp::mod:
      return gradients_of<gradient_mod, kNothing, kOfArray>(kBoth);
    case BinaryOp::fmod:
      return gradients_of<gradient_fmod, kNothing, kOfArrayAndResult>(kBothAndResult);
    case BinaryOp::pow:
      return gradients_of<gradient_pow, kOfArray, kOfArrayAndResult>(kBothAndResult);
    case BinaryOp::maximum:
      return gradients_of<gradient_extreme<true>, kOfArray>(kBoth);
    case BinaryOp::minimum:
      return gradients_of<gradient_extreme<false>, kOfArray>(kBoth);
    case BinaryOp::fmax:
      return gradients_of<gradient_number_extreme<true>, kOfArray>(kBoth);
    case BinaryOp::fmin:
      return gradients_of<gradient_number_extreme<false>, kOfArray>(kBoth);
    case BinaryOp::atan2:
      return gradients_of<gradient_atan2, kOfArray>(kBoth);
    case BinaryOp::hypot:
      return gradients_of<gradient_hypot, kOfArrayAndResult>(kBothAndResult);
    case BinaryOp::copysign:
      return gradients_of<gradient_copysign, kOfArray, kNothing>(kBoth);
    case BinaryOp::logaddexp:
      return gradients_of<gradient_logaddexp, kOfArrayAndResult>(kBothAndResult);
    case BinaryOp::relu_backward:
      return gradients_of<gradient_relu_backward>(kSecond);
    case BinaryOp::tanh_backward:
      return gradients_of<gradient_tanh_backward, kNothing, kOfArray>(kBoth);
    case BinaryOp::sigmoid_backward:
      return gradients_of<gradient_sigmoid_backward, kNothing, kOfArray>(kBoth);
    case BinaryOp::silu_backward:
      return gradients_of<gradient_silu_backward, kNothing, kOfArray>(kBoth);
    case BinaryOp::gelu_backward:
      return gradients_of<gradient_gelu_backward, kNothing, kOfArray>(kBoth);
    case BinaryOp::gelu_tanh_backward:
      return gradients_of<gradient_gelu_tanh_backward, kNothing, kOfArray>(kBoth);
    case BinaryOp::binary_cross_entropy:
      return gradients_of<gradient_binary_cross_entropy, kOfArray, kNothing>(kBoth);
    default:
      return {};  // results that are not floating point, and nextafter, which is not differentiable
  }
}

}  // namespace mx::detail
