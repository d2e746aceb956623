#include "operators/softmax.h"

#include <algorithm>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/softmax.h"
#include "operators/reduce.h"

namespace mx {
namespace {

constexpr int64_t kDirectElements = 512;

void infer(InferContext& c) {
  for (size_t i = 0; i < c.inputs(); ++i)
    MX_CHECK(is_floating(c.dtype(i)), InvalidArgument, "[", c.name(),
             "] expected floating-point elements, got ", c.dtype(i));
  if (c.inputs() == 2)
    MX_CHECK(c.shape(0) == c.shape(1), InvalidArgument, "[", c.name(),
             "] expected dy and y of the same shape, got ", c.shape(0), " and ", c.shape(1));
  normalize_axis(c.attr<SoftmaxAttrs>().axis, std::max(c.shape(0).rank(), 1), c.name());
  c.output(c.shape(0), c.inputs() == 2 ? promote(c.dtype(0), c.dtype(1)) : c.dtype(0));
}

template <void (*kKernel)(const Tensor&, const Tensor&, int64_t)>
void run(const KernelArgs& args) {
  kKernel(args.out[0], args.in[0], args.attr<SoftmaxAttrs>().axis);
}

template <void (*kKernel)(const Tensor&, const Tensor&, const Tensor&, int64_t)>
void run_backward(const KernelArgs& args) {
  kKernel(args.out[0], args.in[0], args.in[1], args.attr<SoftmaxAttrs>().axis);
}

void gradient_softmax(GradientContext& g) {
  g.set(0, softmax_backward(g.head(), g.output(), g.attr<SoftmaxAttrs>().axis));
}

void gradient_log_softmax(GradientContext& g) {
  g.set(0, log_softmax_backward(g.head(), g.output(), g.attr<SoftmaxAttrs>().axis));
}

/// Returns the sum along the axis, which keeps size 1.
NDArray total(const GradientContext& g, const NDArray& x) {
  return x.rank() == 0 ? x : sum(x, g.attr<SoftmaxAttrs>().axis, true);
}

// y (dy - sum(dy y)) is linear in dy, and symmetric.
void gradient_softmax_backward(GradientContext& g) {
  const NDArray &dy = g.input(0), &y = g.input(1), &head = g.head();
  if (g.wanted(0)) g.set(0, softmax_backward(head, y, g.attr<SoftmaxAttrs>().axis));
  if (g.wanted(1)) g.set(1, head * (dy - total(g, dy * y)) - dy * total(g, head * y));
}

// dy - exp(y) sum(dy)
void gradient_log_softmax_backward(GradientContext& g) {
  const NDArray &y = g.input(1), &head = g.head(), shares = head * exp(y);
  if (g.wanted(0)) g.set(0, head - total(g, shares));
  if (g.wanted(1)) g.set(1, -(shares * total(g, g.input(0))));
}

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kSoftmax = {
    .kernel = {"softmax", run<kernels::softmax>, cuda::softmax, kDirectElements},
    .doc = "Softmax along an axis, exp(x) / sum(exp(x)).",
    .family = "softmax",
    .inputs = {"x"},
    .attrs = &kAttrType<SoftmaxAttrs>,
    .infer = infer,
    .gradient = gradient_softmax,
    .gradient_uses = {.outputs = bit_set(0)},
    .dtypes = kFloating,
    .in_place = bit_set(0),
};

constexpr Operator kLogSoftmax = {
    .kernel = {"log_softmax", run<kernels::log_softmax>, cuda::log_softmax, kDirectElements},
    .doc = "Logarithm of softmax along an axis, x - log(sum(exp(x))).",
    .family = "softmax",
    .inputs = {"x"},
    .attrs = &kAttrType<SoftmaxAttrs>,
    .infer = infer,
    .gradient = gradient_log_softmax,
    .gradient_uses = {.outputs = bit_set(0)},
    .dtypes = kFloating,
    .in_place = bit_set(0),
};

constexpr Operator kSoftmaxBackward = {
    .kernel = {"softmax_backward", run_backward<kernels::softmax_backward>, cuda::softmax_backward,
               kDirectElements},
    .doc = "Gradient of softmax with respect to its input, from the output y: y * (dy - sum(dy * y)).",
    .family = "softmax",
    .inputs = {"dy", "y"},
    .outputs = {"dx"},
    .attrs = &kAttrType<SoftmaxAttrs>,
    .infer = infer,
    .gradient = gradient_softmax_backward,
    .gradient_uses = {.inputs = bit_set(0, 1)},
    .dtypes = kFloating,
    .in_place = bit_set(0, 1),
};

constexpr Operator kLogSoftmaxBackward = {
    .kernel = {"log_softmax_backward", run_backward<kernels::log_softmax_backward>,
               cuda::log_softmax_backward, kDirectElements},
    .doc = "Gradient of log_softmax with respect to its input, from the output y: dy - exp(y) * sum(dy).",
    .family = "softmax",
    .inputs = {"dy", "y"},
    .outputs = {"dx"},
    .attrs = &kAttrType<SoftmaxAttrs>,
    .infer = infer,
    .gradient = gradient_log_softmax_backward,
    .gradient_uses = {.inputs = bit_set(0, 1)},
    .dtypes = kFloating,
    .in_place = bit_set(0, 1),
};

}  // namespace

namespace detail {
OperatorFamily family_softmax() { return {&kSoftmax, &kLogSoftmax, &kSoftmaxBackward, &kLogSoftmaxBackward}; }
}  // namespace detail

NDArray softmax(const Arg& x, IntArg axis) { return call(kSoftmax, SoftmaxAttrs{axis}, x); }
NDArray log_softmax(const Arg& x, IntArg axis) { return call(kLogSoftmax, SoftmaxAttrs{axis}, x); }
NDArray softmax_backward(const Arg& dy, const NDArray& y, IntArg axis) {
  return call(kSoftmaxBackward, SoftmaxAttrs{axis}, dy, y);
}
NDArray log_softmax_backward(const Arg& dy, const NDArray& y, IntArg axis) {
  return call(kLogSoftmaxBackward, SoftmaxAttrs{axis}, dy, y);
}

}  // namespace mx
