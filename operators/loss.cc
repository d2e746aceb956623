#include "operators/loss.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/kernels/loss.h"
#include "operators/loss_gradient.h"
#include "operators/optional_input.h"

namespace mx {

using kernels::LossReduction;

namespace {

// A row is expensive, so only tiny losses run directly in the calling thread.
constexpr int64_t kDirectElements = 128;

LossReduction reduction_of(const std::string& name, const char* op) {
  if (name == "mean") return LossReduction::mean;
  if (name == "sum") return LossReduction::sum;
  MX_CHECK(name == "none", InvalidArgument, "[", op,
           "] expected \"none\", \"mean\" or \"sum\" for the reduction, got \"", name, '"');
  return LossReduction::none;
}

double smoothing_of(const CrossEntropyAttrs& attrs) { return attrs.label_smoothing; }
double smoothing_of(const NllAttrs&) { return 0; }

template <class A>
kernels::CrossEntropyOptions options_of(const A& attrs, const char* op) {
  return {attrs.axis, attrs.ignore_index, smoothing_of(attrs), reduction_of(attrs.reduction, op)};
}

/// Checks scores, target and weight, inputs `first` and following; returns the loss's shape.
template <class A>
Shape check_operands(InferContext& c, size_t first) {
  constexpr bool kDistributions = std::is_same_v<A, CrossEntropyAttrs>;
  const A& attrs = c.attr<A>();
  const Shape &x = c.shape(first), &target = c.shape(first + 1);
  const DType labels = c.dtype(first + 1);
  MX_CHECK(x.rank() >= 1 && is_floating(c.dtype(first)), InvalidArgument, "[", c.name(),
           "] expected floating-point scores of rank 1 or more, got ", c.dtype(first), " of shape ", x);
  const double smoothing = smoothing_of(attrs);
  MX_CHECK(smoothing >= 0 && smoothing <= 1, InvalidArgument, "[", c.name(),
           "] expected a label_smoothing from 0 to 1, got ", smoothing);
  const int axis = x.rank() == 1 ? 0 : normalize_axis(attrs.axis, x.rank(), c.name());
  Shape rows = x;
  rows.erase(axis);
  MX_CHECK(x[axis] > 0 || rows.numel() == 0, InvalidArgument, "[", c.name(),
           "] expected at least one class, got shape ", x);
  if (kDistributions && is_floating(labels)) {
    MX_CHECK(target == x, InvalidArgument, "[", c.name(), "] expected a distribution of the scores' shape ",
             x, ", or integer labels of shape ", rows, ", got ", labels, " of shape ", target);
    MX_CHECK(attrs.ignore_index < 0, InvalidArgument, "[", c.name(),
             "] expected no ignore_index for a target that is a distribution, got ", attrs.ignore_index);
  } else {
    MX_CHECK(is_integral(labels), InvalidArgument, "[", c.name(), "] expected integer labels",
             kDistributions ? " or a floating-point distribution" : "", ", got ", labels);
    MX_CHECK(target == rows, InvalidArgument, "[", c.name(), "] expected labels of shape ", rows,
             " for scores of shape ", x, " with classes along axis ", axis, ", got ", target);
  }
  if (c.inputs() > first + 2)
    MX_CHECK(c.shape(first + 2) == Shape{x[axis]}, InvalidArgument, "[", c.name(),
             "] expected one weight for each of ", x[axis], " classes, got shape ", c.shape(first + 2));
  return reduction_of(attrs.reduction, c.name()) == LossReduction::none ? rows : Shape{};
}

template <class A>
void infer(InferContext& c) {
  c.output(check_operands<A>(c, 0), c.dtype(0));
}

template <class A>
void infer_backward(InferContext& c) {
  const Shape loss = check_operands<A>(c, 1);
  MX_CHECK(c.shape(0) == loss && is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected a floating-point gradient of the loss's shape ", loss, ", got ", c.dtype(0), " of ",
           c.shape(0));
  c.output(c.shape(1), c.dtype(1));
}

template <class A, auto kKernel>
void run(const KernelArgs& args) {
  kKernel(args.out[0], args.in[0], args.in[1], detail::optional_input(args, 2),
          options_of(args.attr<A>(), "loss"));
}

template <class A, auto kKernel>
void run_backward(const KernelArgs& args) {
  kKernel(args.out[0], args.in[0], args.in[1], args.in[2], detail::optional_input(args, 3),
          options_of(args.attr<A>(), "loss"));
}

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kCrossEntropy = {
    .kernel = {"cross_entropy", run<CrossEntropyAttrs, kernels::cross_entropy>, cuda::cross_entropy,
               kDirectElements},
    .doc =
        "Cross entropy between softmax(logits) and the target: class labels, or a distribution over the "
        "classes.",
    .family = "loss",
    .inputs = {"logits", "target", "weight?"},
    .outputs = {"loss"},
    .attrs = &kAttrType<CrossEntropyAttrs>,
    .infer = infer<CrossEntropyAttrs>,
    .gradient = detail::gradient_cross_entropy,
    .gradient_uses = {.inputs = bit_set(0, 1, 2)},
    .dtypes = kFloating,
};

constexpr Operator kCrossEntropyBackward = {
    .kernel = {"cross_entropy_backward", run_backward<CrossEntropyAttrs, kernels::cross_entropy_backward>,
               cuda::cross_entropy_backward, kDirectElements},
    .doc = "Gradient of cross_entropy with respect to the logits.",
    .family = "loss",
    .inputs = {"dloss", "logits", "target", "weight?"},
    .outputs = {"dlogits"},
    .attrs = &kAttrType<CrossEntropyAttrs>,
    .infer = infer_backward<CrossEntropyAttrs>,
    .gradient = detail::gradient_cross_entropy_backward,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3)},
    .dtypes = kFloating,
};

constexpr Operator kNllLoss = {
    .kernel = {"nll_loss", run<NllAttrs, kernels::nll>, cuda::nll_loss, kDirectElements},
    .doc = "Negative log-likelihood of the labels, from log-probabilities.",
    .family = "loss",
    .inputs = {"log_probabilities", "labels", "weight?"},
    .outputs = {"loss"},
    .attrs = &kAttrType<NllAttrs>,
    .infer = infer<NllAttrs>,
    .gradient = detail::gradient_nll_loss,
    .gradient_uses = {.inputs = bit_set(0, 1, 2)},
    .dtypes = kFloating,
};

constexpr Operator kNllLossBackward = {
    .kernel = {"nll_loss_backward", run_backward<NllAttrs, kernels::nll_backward>, cuda::nll_loss_backward,
               kDirectElements},
    .doc = "Gradient of nll_loss with respect to the log-probabilities.",
    .family = "loss",
    .inputs = {"dloss", "log_probabilities", "labels", "weight?"},
    .outputs = {"dx"},
    .attrs = &kAttrType<NllAttrs>,
    .infer = infer_backward<NllAttrs>,
    .gradient = detail::gradient_nll_loss_backward,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3)},
    .dtypes = kFloating,
};

CrossEntropyAttrs cross_entropy_attrs(const ClassLossOptions& o) {
  return {o.axis, o.ignore_index, o.label_smoothing, o.reduction};
}

NllAttrs nll_attrs(const ClassLossOptions& o, const char* op) {
  MX_CHECK(o.label_smoothing == 0, InvalidArgument, "[", op, "] expected no label_smoothing, got ",
           o.label_smoothing);
  return {o.axis, o.ignore_index, o.reduction};
}

NDArray call_loss(const Operator& op, const Attrs& attrs, const Arg& x, const NDArray& target,
                  const NDArray& weight) {
  return weight.defined() ? call(op, attrs, x, target, weight) : call(op, attrs, x, target);
}

NDArray call_backward(const Operator& op, const Attrs& attrs, const Arg& dloss, const NDArray& x,
                      const NDArray& target, const NDArray& weight) {
  if (!weight.defined()) return call(op, attrs, dloss, x, target);
  const NDArray inputs[] = {dloss.array, x, target, weight};
  return call(op, attrs, inputs, dloss.where)[0];
}

}  // namespace

namespace detail {
OperatorFamily family_loss() {
  return {&kCrossEntropy, &kCrossEntropyBackward, &kNllLoss, &kNllLossBackward};
}
}  // namespace detail

NDArray cross_entropy(const Arg& logits, const NDArray& target, const ClassLossOptions& options) {
  return call_loss(kCrossEntropy, cross_entropy_attrs(options), logits, target, options.weight);
}
NDArray cross_entropy_backward(const Arg& dloss, const NDArray& logits, const NDArray& target,
                               const ClassLossOptions& options) {
  return call_backward(kCrossEntropyBackward, cross_entropy_attrs(options), dloss, logits, target,
                       options.weight);
}
NDArray nll_loss(const Arg& x, const NDArray& labels, const ClassLossOptions& options) try {
  return call_loss(kNllLoss, nll_attrs(options, "nll_loss"), x, labels, options.weight);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}
NDArray nll_loss_backward(const Arg& dloss, const NDArray& x, const NDArray& labels,
                          const ClassLossOptions& options) try {
  return call_backward(kNllLossBackward, nll_attrs(options, "nll_loss_backward"), dloss, x, labels,
                       options.weight);
} catch (const Error&) {
  detail::rethrow_at(dloss.where);
}

}  // namespace mx
