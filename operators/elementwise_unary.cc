#include "operators/elementwise_unary.h"

#include "engine/base/check.h"
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
    {UnaryOp::neg, "-x; integers wrap."},
    {UnaryOp::abs, "The magnitude."},
    {UnaryOp::sign, "-1, 0 or 1; NaN of NaN."},
    {UnaryOp::square, "x * x."},
    {UnaryOp::relu, "max(x, 0)."},
    {UnaryOp::floor, "The largest integer that is not above x."},
    {UnaryOp::ceil, "The smallest integer that is not below x."},
    {UnaryOp::round, "The nearest integer; halves go to the even one."},
    {UnaryOp::trunc, "x without its fraction."},
    {UnaryOp::exp, "e to the power of x."},
    {UnaryOp::exp2, "2 to the power of x."},
    {UnaryOp::expm1, "exp(x) - 1, exact near 0."},
    {UnaryOp::log, "The natural logarithm."},
    {UnaryOp::log2, "The logarithm to base 2."},
    {UnaryOp::log10, "The logarithm to base 10."},
    {UnaryOp::log1p, "log(1 + x), exact near 0."},
    {UnaryOp::sqrt, "The square root."},
    {UnaryOp::rsqrt, "1 / sqrt(x)."},
    {UnaryOp::cbrt, "The cube root."},
    {UnaryOp::reciprocal, "1 / x."},
    {UnaryOp::sin, "The sine."},
    {UnaryOp::cos, "The cosine."},
    {UnaryOp::tan, "The tangent."},
    {UnaryOp::asin, "The inverse of the sine."},
    {UnaryOp::acos, "The inverse of the cosine."},
    {UnaryOp::atan, "The inverse of the tangent."},
    {UnaryOp::sinh, "The hyperbolic sine."},
    {UnaryOp::cosh, "The hyperbolic cosine."},
    {UnaryOp::tanh, "The hyperbolic tangent."},
    {UnaryOp::asinh, "The inverse of the hyperbolic sine."},
    {UnaryOp::acosh, "The inverse of the hyperbolic cosine."},
    {UnaryOp::atanh, "The inverse of the hyperbolic tangent."},
    {UnaryOp::erf, "The error function."},
    {UnaryOp::erfc, "1 - erf(x), exact for large x."},
    {UnaryOp::lgamma, "The logarithm of the magnitude of the gamma function."},
    {UnaryOp::sigmoid, "1 / (1 + exp(-x))."},
    {UnaryOp::softplus, "log(1 + exp(x))."},
    {UnaryOp::silu, "x * sigmoid(x)."},
    {UnaryOp::gelu, "x * (1 + erf(x / sqrt(2))) / 2."},
    {UnaryOp::gelu_tanh, "gelu with the tanh approximation."},
    {UnaryOp::bitwise_not, "All bits inverted; of bool, not."},
    {UnaryOp::logical_not, "Is x zero?"},
    {UnaryOp::isnan, "Is x not a number?"},
    {UnaryOp::isinf, "Is x infinite?"},
    {UnaryOp::isfinite, "Is x neither infinite nor NaN?"},
    {UnaryOp::signbit, "Does x have a minus sign?"},
};

template <UnaryOp kOp>
void infer(InferContext& c) {
  MX_CHECK(kernels::unary_supports(kOp, c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected a type that it can compute with, got ", c.dtype(0));
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
      .kernel = {kernels::to_string(kOp), run<kOp>, nullptr, cost.direct_elements},
      .doc = kEntries[kIndex].doc,
      .family = "elementwise",
      .inputs = {"x"},
      .infer = infer<kOp>,
      .gradient = detail::unary_gradient(kOp).gradient,
      .gradient_uses = detail::unary_gradient(kOp).uses,
      .dtypes = dtypes<kOp>(),
      .work = cost.f64_weight > 1 ? work<kOp> : nullptr,
      .in_place = 1,
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
