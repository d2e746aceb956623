#include "operators/elementwise_unary.h"

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_cost.h"
#include "operators/elementwise_gradient.h"
#include "operators/kernels/unary.h"

namespace mx {

using kernels::UnaryOp;

namespace {

struct Entry {
  UnaryOp op;
  const char* doc;
};

// In the order of the reference page.
constexpr Entry kEntries[] = {
    {UnaryOp::neg, "Negation -x; integers wrap."},
    {UnaryOp::abs, "Absolute value |x|; integers wrap."},
    {UnaryOp::sign, "Sign of x: -1, 0 or 1; NaN for NaN."},
    {UnaryOp::square, "Square x * x."},
    {UnaryOp::relu, "Rectified linear unit, max(x, 0)."},
    {UnaryOp::floor, "Largest integer that is not above x."},
    {UnaryOp::ceil, "Smallest integer that is not below x."},
    {UnaryOp::round, "Nearest integer; ties go to the even one."},
    {UnaryOp::trunc, "Integer part: x rounded towards zero."},
    {UnaryOp::exp, "Exponential function, e to the power of x."},
    {UnaryOp::exp2, "Power 2^x."},
    {UnaryOp::expm1, "Difference exp(x) - 1, accurate for x near 0."},
    {UnaryOp::log, "Natural logarithm."},
    {UnaryOp::log2, "Logarithm to base 2."},
    {UnaryOp::log10, "Logarithm to base 10."},
    {UnaryOp::log1p, "Natural logarithm of 1 + x, accurate for x near 0."},
    {UnaryOp::sqrt, "Square root."},
    {UnaryOp::rsqrt, "Reciprocal square root, 1 / sqrt(x)."},
    {UnaryOp::cbrt, "Cube root."},
    {UnaryOp::reciprocal, "Reciprocal, 1 / x."},
    {UnaryOp::sin, "Sine of x in radians."},
    {UnaryOp::cos, "Cosine of x in radians."},
    {UnaryOp::tan, "Tangent of x in radians."},
    {UnaryOp::asin, "Inverse sine, in radians."},
    {UnaryOp::acos, "Inverse cosine, in radians."},
    {UnaryOp::atan, "Inverse tangent, in radians."},
    {UnaryOp::sinh, "Hyperbolic sine."},
    {UnaryOp::cosh, "Hyperbolic cosine."},
    {UnaryOp::tanh, "Hyperbolic tangent."},
    {UnaryOp::asinh, "Inverse hyperbolic sine."},
    {UnaryOp::acosh, "Inverse hyperbolic cosine."},
    {UnaryOp::atanh, "Inverse hyperbolic tangent."},
    {UnaryOp::erf, "Error function."},
    {UnaryOp::erfc, "Complementary error function, 1 - erf(x), accurate for large x."},
    {UnaryOp::lgamma, "Natural logarithm of the absolute value of the gamma function."},
    {UnaryOp::sigmoid, "Logistic function, 1 / (1 + exp(-x))."},
    {UnaryOp::softplus, "Softplus, log(1 + exp(x))."},
    {UnaryOp::silu, "Sigmoid linear unit, x * sigmoid(x)."},
    {UnaryOp::gelu, "Gaussian error linear unit, x * (1 + erf(x / sqrt(2))) / 2."},
    {UnaryOp::gelu_tanh, "Gaussian error linear unit with the tanh approximation."},
    {UnaryOp::bitwise_not, "Bitwise complement; for bool, logical not."},
    {UnaryOp::logical_not, "True where x is zero."},
    {UnaryOp::isnan, "True where x is NaN."},
    {UnaryOp::isinf, "True where x is infinite."},
    {UnaryOp::isfinite, "True where x is neither infinite nor NaN."},
    {UnaryOp::signbit, "True where the sign bit of x is set; this includes -0."},
};

template <UnaryOp kOp>
void infer(InferContext& c) {
  MX_CHECK(kernels::unary_supports(kOp, c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected an element type that the operator supports, got ", c.dtype(0));
  c.output(c.shape(0), kernels::unary_result(kOp, c.dtype(0)));
}

template <UnaryOp kOp>
void run(const KernelArgs& args) {
  kernels::unary(kOp, args.out[0], args.in[0]);
}

template <UnaryOp kOp>
detail::RecordList<DType, kDTypes> dtypes() {
  detail::RecordList<DType, kDTypes> list;
  for (DType dtype : kAllDTypes)
    if (kernels::unary_supports(kOp, dtype)) list.push_back(dtype);
  return list;
}

/// Work of an operator for which f64 costs more than the other types.
template <UnaryOp kOp>
int64_t work(const InferContext& c) {
  static const int64_t weight = detail::element_cost(kOp).f64_weight;
  const int64_t elements = c.output_shape(0).numel();
  return c.dtype(0) == f64 ? elements * weight : elements;
}

template <size_t kIndex>
const Operator& record() {
  constexpr UnaryOp kOp = kEntries[kIndex].op;
  static const detail::ElementCost cost = detail::element_cost(kOp);
  static const Operator op = {
      .kernel = {kernels::to_string(kOp), run<kOp>, cuda::unary<kOp>, cost.direct_elements},
      .doc = kEntries[kIndex].doc,
      .family = "elementwise",
      .inputs = {"x"},
      .infer = infer<kOp>,
      .gradient = detail::unary_gradient(kOp).gradient,
      .gradient_uses = detail::unary_gradient(kOp).uses,
      .dtypes = dtypes<kOp>(),
      .work = cost.f64_weight > 1 ? work<kOp> : nullptr,
      .in_place = bit_set(0),
      .elementwise = true,
  };
  return op;
}

constexpr size_t index_of(UnaryOp op) {
  size_t i = 0;
  while (kEntries[i].op != op) ++i;
  return i;
}

template <UnaryOp kOp>
NDArray apply(const Arg& x) {
  return call(record<index_of(kOp)>(), {}, x);
}

template <size_t... kIndex>
OperatorFamily family(std::index_sequence<kIndex...>) {
  return {&record<kIndex>()...};
}

}  // namespace

namespace detail {
OperatorFamily family_elementwise_unary() { return family(std::make_index_sequence<std::size(kEntries)>()); }
}  // namespace detail

NDArray neg(const Arg& x) { return apply<UnaryOp::neg>(x); }
NDArray abs(const Arg& x) { return apply<UnaryOp::abs>(x); }
NDArray sign(const Arg& x) { return apply<UnaryOp::sign>(x); }
NDArray square(const Arg& x) { return apply<UnaryOp::square>(x); }
NDArray relu(const Arg& x) { return apply<UnaryOp::relu>(x); }
NDArray floor(const Arg& x) { return apply<UnaryOp::floor>(x); }
NDArray ceil(const Arg& x) { return apply<UnaryOp::ceil>(x); }
NDArray round(const Arg& x) { return apply<UnaryOp::round>(x); }
NDArray trunc(const Arg& x) { return apply<UnaryOp::trunc>(x); }
NDArray exp(const Arg& x) { return apply<UnaryOp::exp>(x); }
NDArray exp2(const Arg& x) { return apply<UnaryOp::exp2>(x); }
NDArray expm1(const Arg& x) { return apply<UnaryOp::expm1>(x); }
NDArray log(const Arg& x) { return apply<UnaryOp::log>(x); }
NDArray log2(const Arg& x) { return apply<UnaryOp::log2>(x); }
NDArray log10(const Arg& x) { return apply<UnaryOp::log10>(x); }
NDArray log1p(const Arg& x) { return apply<UnaryOp::log1p>(x); }
NDArray sqrt(const Arg& x) { return apply<UnaryOp::sqrt>(x); }
NDArray rsqrt(const Arg& x) { return apply<UnaryOp::rsqrt>(x); }
NDArray cbrt(const Arg& x) { return apply<UnaryOp::cbrt>(x); }
NDArray reciprocal(const Arg& x) { return apply<UnaryOp::reciprocal>(x); }
NDArray sin(const Arg& x) { return apply<UnaryOp::sin>(x); }
NDArray cos(const Arg& x) { return apply<UnaryOp::cos>(x); }
NDArray tan(const Arg& x) { return apply<UnaryOp::tan>(x); }
NDArray asin(const Arg& x) { return apply<UnaryOp::asin>(x); }
NDArray acos(const Arg& x) { return apply<UnaryOp::acos>(x); }
NDArray atan(const Arg& x) { return apply<UnaryOp::atan>(x); }
NDArray sinh(const Arg& x) { return apply<UnaryOp::sinh>(x); }
NDArray cosh(const Arg& x) { return apply<UnaryOp::cosh>(x); }
NDArray tanh(const Arg& x) { return apply<UnaryOp::tanh>(x); }
NDArray asinh(const Arg& x) { return apply<UnaryOp::asinh>(x); }
NDArray acosh(const Arg& x) { return apply<UnaryOp::acosh>(x); }
NDArray atanh(const Arg& x) { return apply<UnaryOp::atanh>(x); }
NDArray erf(const Arg& x) { return apply<UnaryOp::erf>(x); }
NDArray erfc(const Arg& x) { return apply<UnaryOp::erfc>(x); }
NDArray lgamma(const Arg& x) { return apply<UnaryOp::lgamma>(x); }
NDArray sigmoid(const Arg& x) { return apply<UnaryOp::sigmoid>(x); }
NDArray softplus(const Arg& x) { return apply<UnaryOp::softplus>(x); }
NDArray silu(const Arg& x) { return apply<UnaryOp::silu>(x); }
NDArray gelu(const Arg& x) { return apply<UnaryOp::gelu>(x); }
NDArray gelu_tanh(const Arg& x) { return apply<UnaryOp::gelu_tanh>(x); }
NDArray bitwise_not(const Arg& x) { return apply<UnaryOp::bitwise_not>(x); }
NDArray logical_not(const Arg& x) { return apply<UnaryOp::logical_not>(x); }
NDArray isnan(const Arg& x) { return apply<UnaryOp::isnan>(x); }
NDArray isinf(const Arg& x) { return apply<UnaryOp::isinf>(x); }
NDArray isfinite(const Arg& x) { return apply<UnaryOp::isfinite>(x); }
NDArray signbit(const Arg& x) { return apply<UnaryOp::signbit>(x); }

}  // namespace mx
