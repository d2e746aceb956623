#include "operators/select.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/element.h"
#include "operators/kernels/tables.h"
#include "operators/select_attrs.h"

namespace mx {

using detail::ClampNumbers;
using detail::WhereNumbers;

namespace {

constexpr int64_t kDirectElements = 1024;

Shape common_shape(const InferContext& c) {
  return broadcast_shapes(broadcast_shapes(c.shape(0), c.shape(1), c.name()), c.shape(2), c.name());
}

void infer_where(InferContext& c) { c.output(common_shape(c), promote(c.dtype(1), c.dtype(2))); }

void run_where(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  kernels::where(out, args.in[0].broadcast(out.shape), args.in[1].broadcast(out.shape),
                 args.in[2].broadcast(out.shape));
}

void infer_clamp(InferContext& c) {
  c.output(common_shape(c), promote(c.dtype(0), promote(c.dtype(1), c.dtype(2))));
}

void run_clamp(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  kernels::clamp(out, args.in[0].broadcast(out.shape), args.in[1].broadcast(out.shape),
                 args.in[2].broadcast(out.shape));
}

void gradient_where(GradientContext& g) {
  const NDArray& condition = g.input(0);
  if (g.wanted(1)) g.set(1, where(condition, g.head(), 0));
  if (g.wanted(2)) g.set(2, where(condition, 0, g.head()));
}

constexpr size_t kNoInput = SIZE_MAX;

/// Returns where x equals a limit. An infinite number is no limit.
NDArray at_limit(const NDArray& x, const Operand& limit) {
  const bool none = !limit.is_array() && std::isinf(limit.number().real());
  return none ? less(x, x) : equal(x, limit);
}

/// Sets the gradients of clamp(x, low, high), where x is input 0 and the limits are the inputs `low_input`
/// and `high_input`, or one of them is a number (kNoInput). If x equals one array, both get half of the
/// gradient; if it equals both, x gets it. If x equals a number, no input gets it. If low > high, `high` gets
/// it.
void set_clamp_gradients(GradientContext& g, const Operand& low, size_t low_input, const Operand& high,
                         size_t high_input) {
  const NDArray& x = g.input(0);
  const NDArray ordered = less_equal(low, high), at_low = at_limit(x, low), at_high = at_limit(x, high);
  const NDArray divided = logical_and(ordered, not_equal(at_low, at_high));
  const NDArray shared = where(divided, g.head() * 0.5, g.head());
  if (g.wanted(0)) {
    NDArray is_result = logical_and(ordered, clamp(x, low, high) == x);
    if (low_input == kNoInput) is_result = logical_and(is_result, logical_not(at_low));
    if (high_input == kNoInput) is_result = logical_and(is_result, logical_not(at_high));
    g.set(0, where(is_result, shared, 0));
  }
  if (low_input != kNoInput && g.wanted(low_input)) {
    const NDArray is_result = logical_or(less(x, low), logical_and(at_low, divided));
    g.set(low_input, where(logical_and(ordered, is_result), shared, 0));
  }
  if (high_input != kNoInput && g.wanted(high_input)) {
    const NDArray is_result = logical_or(greater(x, high), logical_and(at_high, divided));
    g.set(high_input, where(logical_or(logical_not(ordered), is_result), shared, 0));
  }
}

void gradient_clamp(GradientContext& g) { set_clamp_gradients(g, g.input(1), 1, g.input(2), 2); }

// The forms with numbers.

NDArray clamped(const Arg& x, const ClampNumbers& limits);

void infer_where_numbers(InferContext& c) {
  const auto& [a, b] = c.attr<WhereNumbers>();
  MX_CHECK((a || b) && c.inputs() == (a && b ? 1 : 2), InvalidArgument, "[", c.name(),
           "] expected a number and an array to select from, or two numbers, got ", c.inputs() - 1,
           " arrays and ", (a ? 1 : 0) + (b ? 1 : 0), " numbers");
  if (a && b) {
    DType dtype = promote(a->category(), b->category());
    if (dtype == f64) dtype = f32;
    check_fits(*a, dtype, c.name());
    check_fits(*b, dtype, c.name());
    return c.output(c.shape(0), dtype);
  }
  const Scalar& number = a ? *a : *b;
  const DType dtype = promote_weak(c.dtype(1), number.category());
  check_fits(number, dtype, c.name());
  c.output(broadcast_shapes(c.shape(0), c.shape(1), c.name()), dtype);
}

void run_where_numbers(const KernelArgs& args) {
  const auto& [a, b] = args.attr<WhereNumbers>();
  const Tensor& out = args.out[0];
  const kernels::Element first(a.value_or(0), out.dtype, out.shape),
      second(b.value_or(0), out.dtype, out.shape);
  const auto array = [&] { return args.in[1].broadcast(out.shape); };
  kernels::where(out, args.in[0].broadcast(out.shape), a ? *first : array(), b ? *second : array());
}

void gradient_where_numbers(GradientContext& g) {
  const auto& [a, b] = g.attr<WhereNumbers>();
  if (g.inputs() < 2 || !g.wanted(1)) return;
  g.set(1, a ? where(g.input(0), 0, g.head()) : where(g.input(0), g.head(), 0));
}

void infer_clamp_numbers(InferContext& c) {
  const auto& [low, high] = c.attr<ClampNumbers>();
  DType dtype = c.dtype(0);
  Shape shape = c.shape(0);
  if (c.inputs() == 2) {
    MX_CHECK(low.has_value() != high.has_value(), InvalidArgument, "[", c.name(),
             "] expected one number beside an array of limits, got ", low ? "two" : "none");
    dtype = promote(dtype, c.dtype(1));
    shape = broadcast_shapes(shape, c.shape(1), c.name());
  }
  for (const auto& limit : {low, high})
    if (limit) dtype = promote_weak(dtype, limit->category());
  if (!is_floating(dtype)) {
    if (low && !below_all(*low, dtype)) check_fits(*low, dtype, c.name());
    if (high && !above_all(*high, dtype)) check_fits(*high, dtype, c.name());
  }
  c.output(shape, dtype);
}

void run_clamp_numbers(const KernelArgs& args) {
  const auto& [low, high] = args.attr<ClampNumbers>();
  const Tensor& out = args.out[0];
  if (args.in.size() == 1) return kernels::clamp(out, args.in[0], low, high);
  const kernels::Element number(low ? *low : *high, kernels::row_type(out.dtype), out.shape);
  const Tensor x = args.in[0].broadcast(out.shape), limit = args.in[1].broadcast(out.shape);
  kernels::clamp(out, x, low ? *number : limit, low ? limit : *number);
}

/// True where x is between the limits and equals none of them.
NDArray strictly_inside(const NDArray& x, const ClampNumbers& limits) {
  if (!limits.low && !limits.high) return equal(x, x);
  if (!limits.high) return greater(x, *limits.low);
  const NDArray below = less(x, *limits.high);
  return limits.low ? logical_and(greater(x, *limits.low), below) : below;
}

void gradient_clamp_numbers(GradientContext& g) {
  const auto& limits = g.attr<ClampNumbers>();
  const NDArray& x = g.input(0);
  if (g.inputs() == 1) {
    if (g.wanted(0)) g.set(0, where(strictly_inside(x, limits), g.head(), 0));
  } else if (limits.low) {
    set_clamp_gradients(g, *limits.low, kNoInput, g.input(1), 1);
  } else {
    set_clamp_gradients(g, g.input(1), 1, *limits.high, kNoInput);
  }
}

constexpr Operator kWhereNumbers = {
    .kernel = {"where_scalar", run_where_numbers, cuda::where_scalar, kDirectElements},
    .doc = "Selection as by where, with a number in place of a, of b, or of both.",
    .family = "select",
    .inputs = {"condition", "x?"},
    .attrs = &kAttrType<WhereNumbers>,
    .infer = infer_where_numbers,
    .gradient = gradient_where_numbers,
    .gradient_uses = {.inputs = bit_set(0)},
    .in_place = bit_set(1),
    .elementwise = true,
};

constexpr Operator kClampNumbers = {
    .kernel = {"clamp_scalar", run_clamp_numbers, cuda::clamp_scalar, kDirectElements},
    .doc =
        "Elements of x limited to a range, min(max(x, low), high), where a limit is a number or the array "
        "`limit`; NaN if one of the three is NaN.",
    .family = "select",
    .inputs = {"x", "limit?"},
    .attrs = &kAttrType<ClampNumbers>,
    .infer = infer_clamp_numbers,
    .gradient = gradient_clamp_numbers,
    .gradient_uses = {.inputs = bit_set(0, 1)},
    .in_place = bit_set(0, 1),
    .elementwise = true,
};

constexpr Operator kWhere = {
    .kernel = {"where", run_where, cuda::where, kDirectElements},
    .doc = "Elements of a where the condition is not zero, elements of b elsewhere.",
    .family = "select",
    .inputs = {"condition", "a", "b"},
    .infer = infer_where,
    .gradient = gradient_where,
    .gradient_uses = {.inputs = bit_set(0)},
    .in_place = bit_set(1, 2),
    .elementwise = true,
};

constexpr Operator kClamp = {
    .kernel = {"clamp", run_clamp, cuda::clamp, kDirectElements},
    .doc =
        "Elements of x limited to the range from low to high, min(max(x, low), high); NaN if one of the "
        "three is NaN.",
    .family = "select",
    .inputs = {"x", "low", "high"},
    .infer = infer_clamp,
    .gradient = gradient_clamp,
    .gradient_uses = {.inputs = bit_set(0, 1, 2)},
    .in_place = bit_set(0, 1, 2),
    .elementwise = true,
};

NDArray clamped(const Arg& x, const ClampNumbers& limits) { return call(kClampNumbers, limits, x); }

}  // namespace

namespace detail {
OperatorFamily family_select() { return {&kWhere, &kWhereNumbers, &kClamp, &kClampNumbers}; }
const Operator& where_operator() { return kWhere; }
}  // namespace detail

NDArray where(const Arg& condition, const Operand& a, const Operand& b) {
  if (a.is_array() && b.is_array()) return call(kWhere, {}, condition, a.array(), b.array());
  WhereNumbers numbers;
  if (!a.is_array()) numbers.a = a.number();
  if (!b.is_array()) numbers.b = b.number();
  if (!a.is_array() && !b.is_array()) return call(kWhereNumbers, numbers, condition);
  return call(kWhereNumbers, numbers, condition, a.is_array() ? a.array() : b.array());
}

NDArray clamp(const Arg& x, const Operand& low, const Operand& high) {
  if (low.is_array() && high.is_array()) return call(kClamp, {}, x, low.array(), high.array());
  if (low.is_array()) return call(kClampNumbers, ClampNumbers{{}, high.number()}, x, low.array());
  if (high.is_array()) return call(kClampNumbers, ClampNumbers{low.number(), {}}, x, high.array());
  return clamped(x, {low.number(), high.number()});
}
// Floating point does not use maximum() and minimum(), which would share the gradient where x equals the
// limit; here x gets all of it.
NDArray clamp_min(const Arg& x, const Operand& low) {
  if (!low.is_array()) return clamped(x, {low.number(), {}});
  if (!is_floating(x.array.dtype())) return maximum({x.array, x.where}, low);
  return clamp(x, low, std::numeric_limits<double>::infinity());
}
NDArray clamp_max(const Arg& x, const Operand& high) {
  if (!high.is_array()) return clamped(x, {{}, high.number()});
  if (!is_floating(x.array.dtype())) return minimum({x.array, x.where}, high);
  return clamp(x, -std::numeric_limits<double>::infinity(), high);
}
NDArray clip(const Arg& x, const Operand& low, const Operand& high) { return clamp(x, low, high); }

NDArray lerp(const Arg& a, const NDArray& b, const Operand& weight) {
  const NDArray way = sub({b, a.where}, a.array);
  const auto from_a = [&] { return add({a.array, a.where}, mul(weight, way)); };
  const auto from_b = [&] { return sub(b, mul(sub(1, weight), way)); };
  // Computed from the nearer end, so that the result is exact for the weights 0 and 1.
  if (!weight.is_array()) {
    if (weight.number().real() < 0.5) return from_a();
    const double rest = 1 - weight.number().real();
    return sub({b, a.where}, mul({rest, a.where}, way));
  }
  return where({less(weight, 0.5), a.where}, from_a(), from_b());
}

NDArray masked_fill(const Arg& x, const NDArray& mask, Scalar value) try {
  const NDArray& array = x.array;
  MX_CHECK(mask.dtype() == bool_, InvalidArgument, "[masked_fill] expected a mask of type bool, got ",
           mask.dtype());
  MX_CHECK(broadcast_shapes(mask.shape(), array.shape(), "masked_fill") == array.shape(), InvalidArgument,
           "[masked_fill] expected a mask that broadcasts to ", array.shape(), ", got ", mask.shape());
  MX_CHECK(promote_weak(array.dtype(), value.category()) == array.dtype(), InvalidArgument,
           "[masked_fill] expected a value that an array of ", array.dtype(), " can hold, got one of type ",
           value.category());
  check_fits(value, array.dtype(), "masked_fill");
  return call(kWhereNumbers, WhereNumbers{value, {}}, {mask, x.where}, array);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
