#include "operators/elementwise_binary.h"

#include <array>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_cost.h"
#include "operators/elementwise_gradient.h"
#include "operators/kernels/binary.h"
#include "operators/number.h"

namespace mx {

using kernels::BinaryOp;

namespace {

struct Entry {
  BinaryOp op;
  const char* doc;
  const char *a = "a", *b = "b";
};

// In the order of the reference page.
constexpr Entry kEntries[] = {
    {BinaryOp::add, "Sum a + b; logical or for bool."},
    {BinaryOp::sub, "Difference a - b."},
    {BinaryOp::mul, "Product a * b; logical and for bool."},
    {BinaryOp::div, "Quotient a / b in floating point; integers give f32."},
    {BinaryOp::floor_div, "Quotient rounded down, floor(a / b)."},
    {BinaryOp::mod, "Remainder of floor_div, a - b * floor(a / b); it has the sign of b."},
    {BinaryOp::fmod, "Remainder of the division rounded towards zero; it has the sign of a."},
    {BinaryOp::pow, "Power: a raised to the exponent b."},
    {BinaryOp::maximum, "Maximum of a and b; NaN if either is NaN."},
    {BinaryOp::minimum, "Minimum of a and b; NaN if either is NaN."},
    {BinaryOp::fmax, "Maximum of a and b; if one of them is NaN, the other one."},
    {BinaryOp::fmin, "Minimum of a and b; if one of them is NaN, the other one."},
    {BinaryOp::atan2, "Angle of the point with x = b and y = a, in radians from -pi to pi."},
    {BinaryOp::hypot, "Length of the hypotenuse, sqrt(a^2 + b^2), without intermediate overflow."},
    {BinaryOp::copysign, "Number with the magnitude of a and the sign of b."},
    {BinaryOp::nextafter, "Next representable number after a in the direction of b."},
    {BinaryOp::logaddexp,
     "Logarithm of the sum of exponentials, log(exp(a) + exp(b)), without intermediate overflow."},
    {BinaryOp::relu_backward,
     "Gradient of relu with respect to its input: dy where the output y > 0, else 0.", "dy", "y"},
    {BinaryOp::tanh_backward,
     "Gradient of tanh with respect to its input, from the output y: dy * (1 - y^2).", "dy", "y"},
    {BinaryOp::sigmoid_backward,
     "Gradient of sigmoid with respect to its input, from the output y: dy * y * (1 - y).", "dy", "y"},
    {BinaryOp::silu_backward, "Gradient of silu with respect to its input: dy times the derivative at x.",
     "dy", "x"},
    {BinaryOp::gelu_backward, "Gradient of gelu with respect to its input: dy times the derivative at x.",
     "dy", "x"},
    {BinaryOp::gelu_tanh_backward,
     "Gradient of gelu_tanh with respect to its input: dy times the derivative at x.", "dy", "x"},
    {BinaryOp::binary_cross_entropy,
     "Binary cross entropy of each element, -target * log(x) - (1 - target) * log(1 - x), without reduction. "
     "Logarithms are clamped to at least -100.",
     "x", "target"},
    {BinaryOp::equal, "True where a is equal to b."},
    {BinaryOp::not_equal, "True where a is not equal to b."},
    {BinaryOp::less, "True where a is less than b."},
    {BinaryOp::less_equal, "True where a is less than or equal to b."},
    {BinaryOp::greater, "True where a is greater than b."},
    {BinaryOp::greater_equal, "True where a is greater than or equal to b."},
    {BinaryOp::logical_and, "True where a and b are both not zero."},
    {BinaryOp::logical_or, "True where at least one of a and b is not zero."},
    {BinaryOp::logical_xor, "True where exactly one of a and b is not zero."},
    {BinaryOp::bitwise_and, "Bitwise and; for bool, logical and."},
    {BinaryOp::bitwise_or, "Bitwise or; for bool, logical or."},
    {BinaryOp::bitwise_xor, "Bitwise exclusive or; for bool, logical exclusive or."},
    {BinaryOp::left_shift,
     "Left shift of a by b bits, a * 2^b; 0 if b is negative or not below the width of the type."},
    {BinaryOp::right_shift, "Arithmetic right shift of a by b bits, floor(a / 2^b)."},
};

bool floating_only(BinaryOp op) {
  return !kernels::binary_supports(op, i32) && kernels::binary_supports(op, f32);
}

template <BinaryOp kOp>
void infer(InferContext& c) {
  DType computing = promote(c.dtype(0), c.dtype(1));
  static const bool floating = floating_only(kOp);
  if (floating && !is_floating(computing)) computing = f32;
  MX_CHECK(kernels::binary_supports(kOp, computing), InvalidArgument, "[", c.name(),
           "] expected element types that the operator supports, got ", c.dtype(0), " and ", c.dtype(1));
  c.output(broadcast_shapes(c.shape(0), c.shape(1), c.name()), kernels::binary_result(kOp, computing));
}

template <BinaryOp kOp>
void run(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const Tensor &a = args.in[0], &b = args.in[1];
  if (a.shape == out.shape && b.shape == out.shape) return kernels::binary(kOp, out, a, b);
  const Tensor wide_a = a.broadcast(out.shape), wide_b = b.broadcast(out.shape);
  kernels::binary(kOp, out, wide_a, wide_b);
}

/// Returns the types of the first operand. `with_number`: for the form with a number, which also takes bool
/// if the operator takes i64, because an integer number promotes bool to i64.
template <BinaryOp kOp>
detail::RecordList<DType, kDTypes> dtypes(bool with_number = false) {
  detail::RecordList<DType, kDTypes> list;
  for (DType dtype : kAllDTypes)
    if (kernels::binary_supports(kOp, dtype) || (floating_only(kOp) && !is_floating(dtype)) ||
        (with_number && dtype == bool_ && kernels::binary_supports(kOp, i64)))
      list.push_back(dtype);
  return list;
}

/// Work of an operator for which f64 costs more than the other types.
template <BinaryOp kOp>
int64_t work(const InferContext& c) {
  static const int64_t weight = detail::element_cost(kOp).f64_weight;
  const int64_t elements = c.output_shape(0).numel();
  const bool wide = c.dtype(0) == f64 || (c.inputs() > 1 && c.dtype(1) == f64);
  return wide ? elements * weight : elements;
}

template <size_t kIndex>
const Operator& number_record();

template <size_t kIndex>
const Operator& record() {
  constexpr BinaryOp kOp = kEntries[kIndex].op;
  static const detail::ElementCost cost = detail::element_cost(kOp);
  static const Operator op = {
      .kernel = {kernels::to_string(kOp), run<kOp>, cuda::binary<kOp>, cost.direct_elements},
      .doc = kEntries[kIndex].doc,
      .family = "elementwise",
      .inputs = {kEntries[kIndex].a, kEntries[kIndex].b},
      .infer = infer<kOp>,
      .gradient = detail::binary_gradient(kOp).arrays.gradient,
      .gradient_uses = detail::binary_gradient(kOp).arrays.uses,
      .dtypes = dtypes<kOp>(),
      .work = cost.f64_weight > 1 ? work<kOp> : nullptr,
      .in_place = bit_set(0, 1),
      .elementwise = true,
      .number_form = &number_record<kIndex>(),
  };
  return op;
}

constexpr size_t index_of(BinaryOp op) {
  size_t i = 0;
  while (kEntries[i].op != op) ++i;
  return i;
}

// The forms with a number.

constexpr bool compares(BinaryOp op) { return op >= BinaryOp::equal && op <= BinaryOp::logical_xor; }

/// Throws InvalidArgument if the number does not fit an integer type, unless the result can never be the
/// number: the minimum of an element and a number above the range of the type is the element.
void check_number(BinaryOp op, const Scalar& number, DType computing, const char* name) {
  if (is_floating(computing)) return;  // the number is rounded, and may become infinite
  if ((op == BinaryOp::maximum || op == BinaryOp::fmax) && below_all(number, computing)) return;
  if ((op == BinaryOp::minimum || op == BinaryOp::fmin) && above_all(number, computing)) return;
  check_fits(number, computing, name);
}

template <BinaryOp kOp>
void infer_number(InferContext& c) {
  if (compares(kOp)) return c.output(c.shape(0), bool_);
  const Scalar& number = c.attr<NumberAttrs>().number;
  DType computing = promote_weak(c.dtype(0), number.category());
  static const bool floating = floating_only(kOp);
  if (floating && !is_floating(computing)) computing = f32;
  MX_CHECK(kernels::binary_supports(kOp, computing), InvalidArgument, "[", c.name(),
           "] expected an element type and a number that the operator supports, got ", c.dtype(0), " and ",
           number);
  check_number(kOp, number, computing, c.name());
  c.output(c.shape(0), computing);
}

template <BinaryOp kOp>
void run_number(const KernelArgs& args) {
  const NumberAttrs& attrs = args.attr<NumberAttrs>();
  kernels::binary_number(kOp, args.out[0], args.in[0], attrs.number, attrs.left);
}

template <size_t kIndex>
const Operator& number_record() {
  constexpr BinaryOp kOp = kEntries[kIndex].op;
  static const std::string name = std::string(kernels::to_string(kOp)) + "_scalar";
  static const std::string doc =
      std::string(kEntries[kIndex].doc) + " One operand is x, the other one is the attribute `number`.";
  static const detail::ElementCost cost = detail::element_cost(kOp);
  static const Operator op = {
      .kernel = {name.c_str(), run_number<kOp>, cuda::binary_number<kOp>, cost.direct_elements},
      .doc = doc.c_str(),
      .family = "scalar",
      .inputs = {"x"},
      .attrs = &kAttrType<NumberAttrs>,
      .infer = infer_number<kOp>,
      .gradient = detail::binary_gradient(kOp).number,
      .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
      .narrowed_uses = detail::binary_gradient(kOp).number_uses,
      .dtypes = dtypes<kOp>(true),
      .work = cost.f64_weight > 1 ? work<kOp> : nullptr,
      .in_place = bit_set(0),
      .elementwise = true,
  };
  return op;
}

template <BinaryOp kOp>
NDArray apply(const Operand& a, const Operand& b) {
  return call_binary(record<index_of(kOp)>(), a, b);
}

template <BinaryOp kOp>
NDArray& apply_in_place(NDArray& a, const Operand& b) {
  if (b.is_array()) {
    const NDArray inputs[] = {a, b.array()};
    call_into(a, record<index_of(kOp)>(), {}, inputs, b.where());
  } else {
    call_into(a, number_record<index_of(kOp)>(), NumberAttrs{b.number()}, {&a, 1}, b.where());
  }
  return a;
}

template <BinaryOp kOp>
const View& apply_in_place(View&& a, const Operand& b) {
  if (a.advanced()) {
    std::move(a) = Arg(apply<kOp>(Operand(a, b.where()), b), b.where());
  } else {
    // One operation reads and writes, so no other thread can write to the array in between.
    apply_in_place<kOp>(static_cast<NDArray&>(a), b);
  }
  return a;
}

template <size_t... kIndex>
OperatorFamily family(std::index_sequence<kIndex...>) {
  return {&record<kIndex>()...};
}

}  // namespace

namespace detail {
OperatorFamily family_elementwise_binary() { return family(std::make_index_sequence<std::size(kEntries)>()); }
}  // namespace detail

NDArray add(const Operand& a, const Operand& b) { return apply<BinaryOp::add>(a, b); }
NDArray sub(const Operand& a, const Operand& b) { return apply<BinaryOp::sub>(a, b); }
NDArray mul(const Operand& a, const Operand& b) { return apply<BinaryOp::mul>(a, b); }
NDArray div(const Operand& a, const Operand& b) { return apply<BinaryOp::div>(a, b); }
NDArray floor_div(const Operand& a, const Operand& b) { return apply<BinaryOp::floor_div>(a, b); }
NDArray mod(const Operand& a, const Operand& b) { return apply<BinaryOp::mod>(a, b); }
NDArray fmod(const Operand& a, const Operand& b) { return apply<BinaryOp::fmod>(a, b); }
NDArray pow(const Operand& a, const Operand& b) { return apply<BinaryOp::pow>(a, b); }
NDArray maximum(const Operand& a, const Operand& b) { return apply<BinaryOp::maximum>(a, b); }
NDArray minimum(const Operand& a, const Operand& b) { return apply<BinaryOp::minimum>(a, b); }
NDArray fmax(const Operand& a, const Operand& b) { return apply<BinaryOp::fmax>(a, b); }
NDArray fmin(const Operand& a, const Operand& b) { return apply<BinaryOp::fmin>(a, b); }
NDArray atan2(const Operand& y, const Operand& x) { return apply<BinaryOp::atan2>(y, x); }
NDArray hypot(const Operand& a, const Operand& b) { return apply<BinaryOp::hypot>(a, b); }
NDArray copysign(const Operand& magnitude, const Operand& sign) {
  return apply<BinaryOp::copysign>(magnitude, sign);
}
NDArray nextafter(const Operand& from, const Operand& towards) {
  return apply<BinaryOp::nextafter>(from, towards);
}
NDArray logaddexp(const Operand& a, const Operand& b) { return apply<BinaryOp::logaddexp>(a, b); }
NDArray relu_backward(const Operand& dy, const Operand& y) { return apply<BinaryOp::relu_backward>(dy, y); }
NDArray tanh_backward(const Operand& dy, const Operand& y) { return apply<BinaryOp::tanh_backward>(dy, y); }
NDArray sigmoid_backward(const Operand& dy, const Operand& y) {
  return apply<BinaryOp::sigmoid_backward>(dy, y);
}
NDArray silu_backward(const Operand& dy, const Operand& x) { return apply<BinaryOp::silu_backward>(dy, x); }
NDArray gelu_backward(const Operand& dy, const Operand& x) { return apply<BinaryOp::gelu_backward>(dy, x); }
NDArray gelu_tanh_backward(const Operand& dy, const Operand& x) {
  return apply<BinaryOp::gelu_tanh_backward>(dy, x);
}
NDArray binary_cross_entropy(const Operand& x, const Operand& target) {
  return apply<BinaryOp::binary_cross_entropy>(x, target);
}
NDArray equal(const Operand& a, const Operand& b) { return apply<BinaryOp::equal>(a, b); }
NDArray not_equal(const Operand& a, const Operand& b) { return apply<BinaryOp::not_equal>(a, b); }
NDArray less(const Operand& a, const Operand& b) { return apply<BinaryOp::less>(a, b); }
NDArray less_equal(const Operand& a, const Operand& b) { return apply<BinaryOp::less_equal>(a, b); }
NDArray greater(const Operand& a, const Operand& b) { return apply<BinaryOp::greater>(a, b); }
NDArray greater_equal(const Operand& a, const Operand& b) { return apply<BinaryOp::greater_equal>(a, b); }
NDArray logical_and(const Operand& a, const Operand& b) { return apply<BinaryOp::logical_and>(a, b); }
NDArray logical_or(const Operand& a, const Operand& b) { return apply<BinaryOp::logical_or>(a, b); }
NDArray logical_xor(const Operand& a, const Operand& b) { return apply<BinaryOp::logical_xor>(a, b); }
NDArray bitwise_and(const Operand& a, const Operand& b) { return apply<BinaryOp::bitwise_and>(a, b); }
NDArray bitwise_or(const Operand& a, const Operand& b) { return apply<BinaryOp::bitwise_or>(a, b); }
NDArray bitwise_xor(const Operand& a, const Operand& b) { return apply<BinaryOp::bitwise_xor>(a, b); }
NDArray left_shift(const Operand& a, const Operand& b) { return apply<BinaryOp::left_shift>(a, b); }
NDArray right_shift(const Operand& a, const Operand& b) { return apply<BinaryOp::right_shift>(a, b); }

NDArray& operator+=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::add>(a, b); }
NDArray& operator-=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::sub>(a, b); }
NDArray& operator*=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::mul>(a, b); }
NDArray& operator/=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::div>(a, b); }
NDArray& operator%=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::mod>(a, b); }
NDArray& operator&=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::bitwise_and>(a, b); }
NDArray& operator|=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::bitwise_or>(a, b); }
NDArray& operator^=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::bitwise_xor>(a, b); }
NDArray& operator<<=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::left_shift>(a, b); }
NDArray& operator>>=(NDArray& a, const Operand& b) { return apply_in_place<BinaryOp::right_shift>(a, b); }
const View& operator+=(View&& a, const Operand& b) { return apply_in_place<BinaryOp::add>(std::move(a), b); }
const View& operator-=(View&& a, const Operand& b) { return apply_in_place<BinaryOp::sub>(std::move(a), b); }
const View& operator*=(View&& a, const Operand& b) { return apply_in_place<BinaryOp::mul>(std::move(a), b); }
const View& operator/=(View&& a, const Operand& b) { return apply_in_place<BinaryOp::div>(std::move(a), b); }
const View& operator%=(View&& a, const Operand& b) { return apply_in_place<BinaryOp::mod>(std::move(a), b); }
const View& operator&=(View&& a, const Operand& b) {
  return apply_in_place<BinaryOp::bitwise_and>(std::move(a), b);
}
const View& operator|=(View&& a, const Operand& b) {
  return apply_in_place<BinaryOp::bitwise_or>(std::move(a), b);
}
const View& operator^=(View&& a, const Operand& b) {
  return apply_in_place<BinaryOp::bitwise_xor>(std::move(a), b);
}
const View& operator<<=(View&& a, const Operand& b) {
  return apply_in_place<BinaryOp::left_shift>(std::move(a), b);
}
const View& operator>>=(View&& a, const Operand& b) {
  return apply_in_place<BinaryOp::right_shift>(std::move(a), b);
}

}  // namespace mx
