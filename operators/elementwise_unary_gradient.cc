// Gradients of functions of one operand. At kinks they are PyTorch's: 0 for relu and abs at 0. If the
// derivative can be computed from the result, the gradient does not read the operand, so the operand need not
// be kept.
#include <numbers>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_gradient.h"
#include "operators/elementwise_unary.h"

namespace mx::detail {

using kernels::UnaryOp;

namespace {

using G = GradientContext;

constexpr GradientUses kNeither{}, kOperand{.inputs = bit_set(0)}, kResult{.outputs = bit_set(0)};
constexpr double kLn2 = std::numbers::ln2, kLn10 = std::numbers::ln10,
                 kErfSlope = 2 * std::numbers::inv_sqrtpi;

/// Returns exp(-x^2) * factor.
NDArray bell(const NDArray& x, double factor) { return exp(-square(x)) * factor; }

/// Returns (1 - x) (1 + x), which is 1 - x^2 without cancellation near 1.
NDArray below_one(const NDArray& x) { return (1 - x) * (x + 1); }

}  // namespace

ElementwiseGradient unary_gradient(UnaryOp op) {
  switch (op) {
    case UnaryOp::neg:
      return {[](G& g) { g.set(0, -g.head()); }, kNeither};
    case UnaryOp::abs:
      return {[](G& g) { g.set(0, g.head() * sign(g.input(0))); }, kOperand};
    case UnaryOp::sign:
    case UnaryOp::floor:
    case UnaryOp::ceil:
    case UnaryOp::round:
    case UnaryOp::trunc:
      return {zero_gradient, kNeither};
    case UnaryOp::square:
      return {[](G& g) { g.set(0, g.head() * 2 * g.input(0)); }, kOperand};
    case UnaryOp::relu:
      return {[](G& g) { g.set(0, relu_backward(g.head(), g.output())); }, kResult};
    case UnaryOp::exp:
      return {[](G& g) { g.set(0, g.head() * g.output()); }, kResult};
    case UnaryOp::exp2:
      return {[](G& g) { g.set(0, g.head() * g.output() * kLn2); }, kResult};
    case UnaryOp::expm1:
      return {[](G& g) { g.set(0, g.head() * (g.output() + 1)); }, kResult};
    case UnaryOp::log:
      return {[](G& g) { g.set(0, g.head() / g.input(0)); }, kOperand};
    case UnaryOp::log2:
      return {[](G& g) { g.set(0, g.head() / (g.input(0) * kLn2)); }, kOperand};
    case UnaryOp::log10:
      return {[](G& g) { g.set(0, g.head() / (g.input(0) * kLn10)); }, kOperand};
    case UnaryOp::log1p:
      return {[](G& g) { g.set(0, g.head() / (g.input(0) + 1)); }, kOperand};
    case UnaryOp::sqrt:
      return {[](G& g) { g.set(0, g.head() * 0.5 / g.output()); }, kResult};
    case UnaryOp::rsqrt:
      return {[](G& g) { g.set(0, g.head() * -0.5 * square(g.output()) * g.output()); }, kResult};
    case UnaryOp::cbrt:
      return {[](G& g) { g.set(0, g.head() / (square(g.output()) * 3)); }, kResult};
    case UnaryOp::reciprocal:
      return {[](G& g) { g.set(0, -(g.head() * square(g.output()))); }, kResult};
    case UnaryOp::sin:
      return {[](G& g) { g.set(0, g.head() * cos(g.input(0))); }, kOperand};
    case UnaryOp::cos:
      return {[](G& g) { g.set(0, -(g.head() * sin(g.input(0)))); }, kOperand};
    case UnaryOp::tan:
      return {[](G& g) { g.set(0, g.head() * (square(g.output()) + 1)); }, kResult};
    case UnaryOp::asin:
      return {[](G& g) { g.set(0, g.head() * rsqrt(below_one(g.input(0)))); }, kOperand};
    case UnaryOp::acos:
      return {[](G& g) { g.set(0, -(g.head() * rsqrt(below_one(g.input(0))))); }, kOperand};
    case UnaryOp::atan:
      return {[](G& g) { g.set(0, g.head() / (square(g.input(0)) + 1)); }, kOperand};
    case UnaryOp::sinh:
      return {[](G& g) { g.set(0, g.head() * cosh(g.input(0))); }, kOperand};
    case UnaryOp::cosh:
      return {[](G& g) { g.set(0, g.head() * sinh(g.input(0))); }, kOperand};
    case UnaryOp::tanh:
      return {[](G& g) { g.set(0, tanh_backward(g.head(), g.output())); }, kResult};
    case UnaryOp::asinh:
      return {[](G& g) { g.set(0, g.head() * rsqrt(square(g.input(0)) + 1)); }, kOperand};
    case UnaryOp::acosh:
      return {[](G& g) { g.set(0, g.head() * rsqrt((g.input(0) - 1) * (g.input(0) + 1))); }, kOperand};
    case UnaryOp::atanh:
      return {[](G& g) { g.set(0, g.head() / below_one(g.input(0))); }, kOperand};
    case UnaryOp::erf:
      return {[](G& g) { g.set(0, g.head() * bell(g.input(0), kErfSlope)); }, kOperand};
    case UnaryOp::erfc:
      return {[](G& g) { g.set(0, g.head() * bell(g.input(0), -kErfSlope)); }, kOperand};
    case UnaryOp::lgamma:
      return {[](G& g) { g.set(0, g.head() * digamma(g.input(0))); }, kOperand};
    case UnaryOp::sigmoid:
      return {[](G& g) { g.set(0, sigmoid_backward(g.head(), g.output())); }, kResult};
    case UnaryOp::softplus:
      return {[](G& g) { g.set(0, g.head() * sigmoid(g.input(0))); }, kOperand};
    case UnaryOp::silu:
      return {[](G& g) { g.set(0, silu_backward(g.head(), g.input(0))); }, kOperand};
    case UnaryOp::gelu:
      return {[](G& g) { g.set(0, gelu_backward(g.head(), g.input(0))); }, kOperand};
    case UnaryOp::gelu_tanh:
      return {[](G& g) { g.set(0, gelu_tanh_backward(g.head(), g.input(0))); }, kOperand};
    case UnaryOp::copy:
    case UnaryOp::bitwise_not:
    case UnaryOp::logical_not:
    case UnaryOp::isnan:
    case UnaryOp::isinf:
    case UnaryOp::isfinite:
    case UnaryOp::signbit:
      return {};
  }
  return {};
}

}  // namespace mx::detail
