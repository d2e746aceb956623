#include "operators/select.h"

#include <limits>
#include <optional>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/element.h"

namespace mx {
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

// If x equals a limit, x gets the gradient. If low > high, `high` gets it.
void gradient_clamp(GradientContext& g) {
  const NDArray &x = g.input(0), &low = g.input(1), &high = g.input(2);
  if (g.wanted(0)) g.set(0, where(clamp(x, low, high) == x, g.head(), 0));
  if (g.wanted(1)) g.set(1, where(logical_and(x < low, low < high), g.head(), 0));
  if (g.wanted(2)) g.set(2, where(logical_or(x > high, high < low), g.head(), 0));
}

// The forms with numbers.

/// A number that is not set is an array among the inputs.
struct WhereNumbers {
  std::optional<Scalar> a, b;
  template <class V>
  static void fields(V&& v) {
    v("a", &WhereNumbers::a, "the number used where the condition is not zero; none: the elements of x");
    v("b", &WhereNumbers::b, "the number used elsewhere; none: the elements of x");
  }
};

struct ClampNumbers {
  std::optional<Scalar> low, high;
  template <class V>
  static void fields(V&& v) {
    v("low", &ClampNumbers::low, "the lower limit; none: no limit");
    v("high", &ClampNumbers::high, "the upper limit; none: no limit");
  }
};

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
  for (const auto& limit : {low, high})
    if (limit) dtype = promote_weak(dtype, limit->category());
  if (!is_floating(dtype)) {
    if (low && !below_all(*low, dtype)) check_fits(*low, dtype, c.name());
    if (high && !above_all(*high, dtype)) check_fits(*high, dtype, c.name());
  }
  c.output(c.shape(0), dtype);
}

void run_clamp_numbers(const KernelArgs& args) {
  const auto& [low, high] = args.attr<ClampNumbers>();
  kernels::clamp(args.out[0], args.in[0], low, high);
}

// The same as for arrays.
void gradient_clamp_numbers(GradientContext& g) {
  const NDArray& x = g.input(0);
  if (g.wanted(0)) g.set(0, where(clamped(x, g.attr<ClampNumbers>()) == x, g.head(), 0));
}

constexpr Operator kWhereNumbers = {
    .kernel = {"where_scalar", run_where_numbers, nullptr, kDirectElements},
    .doc = "Selection as by where, with a number in place of a, of b, or of both.",
    .family = "select",
    .inputs = {"condition", "x?"},
    .attrs = &kAttrType<WhereNumbers>,
    .infer = infer_where_numbers,
    .gradient = gradient_where_numbers,
    .gradient_uses = {.inputs = 1},
    .in_place = 2,
    .elementwise = true,
};

constexpr Operator kClampNumbers = {
    .kernel = {"clamp_scalar", run_clamp_numbers, nullptr, kDirectElements},
    .doc =
        "Elements of x limited to the range between two numbers, min(max(x, low), high); NaN if one of the "
        "three is NaN.",
    .family = "select",
    .inputs = {"x"},
    .attrs = &kAttrType<ClampNumbers>,
    .infer = infer_clamp_numbers,
    .gradient = gradient_clamp_numbers,
    .gradient_uses = {.inputs = 1},
    .in_place = 1,
    .elementwise = true,
};

constexpr Operator kWhere = {
    .kernel = {"where", run_where, nullptr, kDirectElements},
    .doc = "Elements of a where the condition is not zero, elements of b elsewhere.",
    .family = "select",
    .inputs = {"condition", "a", "b"},
    .infer = infer_where,
    .gradient = gradient_where,
    .gradient_uses = {.inputs = 1},
    .in_place = 6,
    .elementwise = true,
};

constexpr Operator kClamp = {
    .kernel = {"clamp", run_clamp, nullptr, kDirectElements},
    .doc =
        "Elements of x limited to the range from low to high, min(max(x, low), high); NaN if one of the "
        "three is NaN.",
    .family = "select",
    .inputs = {"x", "low", "high"},
    .infer = infer_clamp,
    .gradient = gradient_clamp,
    .gradient_uses = {.inputs = 7},
    .in_place = 7,
    .elementwise = true,
};

NDArray clamped(const Arg& x, const ClampNumbers& limits) { return call(kClampNumbers, limits, x); }

/// Returns the limit as an array for use with x. A lower limit below the range of an integer type, or an
/// upper limit above it, is replaced by the end of the range.
NDArray limit_array(const Operand& limit, bool is_low, const Arg& x) {
  if (limit.is_array()) return limit.array();
  const DType dtype = promote_weak(x.array.dtype(), limit.number().category());
  const bool beyond = is_low ? below_all(limit.number(), dtype) : above_all(limit.number(), dtype);
  if (!beyond) return limit.with({x.array, x.where}, "clamp");
  const int64_t end = is_low ? INT64_MIN : INT64_MAX;
  return scalar_array(
      visit(dtype, [end](auto tag) { return Scalar(Scalar(end).to<typename decltype(tag)::type>()); }), dtype,
      x.array.context(), x.where);
}

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
  if (!low.is_array() && !high.is_array()) return clamped(x, {low.number(), high.number()});
  return call(kClamp, {}, x, limit_array(low, true, x), limit_array(high, false, x));
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

NDArray masked_fill(const Arg& x, const NDArray& mask, Scalar value) {
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
}

}  // namespace mx
