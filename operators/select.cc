#include "operators/select.h"

#include <limits>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/binary.h"

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

// At the limits it is x that gets the gradient; where they are crossed, all is the upper one's.
void gradient_clamp(GradientContext& g) {
  const NDArray &x = g.input(0), &low = g.input(1), &high = g.input(2);
  if (g.wanted(0)) g.set(0, where(clamp(x, low, high) == x, g.head(), 0));
  if (g.wanted(1)) g.set(1, where(logical_and(x < low, low < high), g.head(), 0));
  if (g.wanted(2)) g.set(2, where(logical_or(x > high, high < low), g.head(), 0));
}

const Operator kWhere = {
    .kernel = {"where", run_where, nullptr, kDirectElements},
    .doc = "a where the condition is not zero, b elsewhere.",
    .family = "select",
    .inputs = {"condition", "a", "b"},
    .infer = infer_where,
    .gradient = gradient_where,
    .gradient_uses = {.inputs = 1},
    .in_place = 6,
    .elementwise = true,
};

const Operator kClamp = {
    .kernel = {"clamp", run_clamp, nullptr, kDirectElements},
    .doc = "min(max(x, low), high); NaN if one of the three is.",
    .family = "select",
    .inputs = {"x", "low", "high"},
    .infer = infer_clamp,
    .gradient = gradient_clamp,
    .gradient_uses = {.inputs = 7},
    .in_place = 7,
    .elementwise = true,
};

NDArray number_like(const Operand& number, const NDArray& array) {
  return number.is_array()
             ? number.array()
             : scalar_array(number.number(), promote_weak(array.dtype(), number.number().category()),
                            array.context());
}

}  // namespace

namespace detail {
OperatorFamily family_select() { return {&kWhere, &kClamp}; }
const Operator& where_operator() { return kWhere; }
}  // namespace detail

NDArray where(const Arg& condition, const Operand& a, const Operand& b) {
  if (a.is_array() || b.is_array())
    return call(kWhere, {}, condition, a.with(b, "where"), b.with(a, "where"));
  DType dtype = promote(a.number().category(), b.number().category());
  if (dtype == f64) dtype = f32;
  const Context context = condition.array.context();
  return call(kWhere, {}, condition, scalar_array(a.number(), dtype, context, condition.where),
              scalar_array(b.number(), dtype, context, condition.where));
}

NDArray clamp(const Arg& x, const Operand& low, const Operand& high) {
  return call(kClamp, {}, x, number_like(low, x.array), number_like(high, x.array));
}
// Of floating point not maximum() and minimum(): where x is the limit, the gradient is x's alone.
NDArray clamp_min(const Arg& x, const Operand& low) {
  if (!is_floating(x.array.dtype())) return maximum({x.array, x.where}, low);
  return clamp(x, low, std::numeric_limits<double>::infinity());
}
NDArray clamp_max(const Arg& x, const Operand& high) {
  if (!is_floating(x.array.dtype())) return minimum({x.array, x.where}, high);
  return clamp(x, -std::numeric_limits<double>::infinity(), high);
}
NDArray clip(const Arg& x, const Operand& low, const Operand& high) { return clamp(x, low, high); }

NDArray lerp(const Arg& a, const NDArray& b, const Operand& weight) {
  const NDArray way = sub({b, a.where}, a.array);
  const auto from_a = [&] { return add({a.array, a.where}, mul(weight, way)); };
  const auto from_b = [&] { return sub(b, mul(sub(1, weight), way)); };
  // From the nearer end, so that both are met exactly.
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
  return call(kWhere, {}, {mask, x.where}, scalar_array(value, array.dtype(), array.context()), array);
}

}  // namespace mx
