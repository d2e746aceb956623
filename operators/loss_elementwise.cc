// The losses that compare two arrays element by element.
#include <algorithm>
#include <iterator>
#include <map>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/loss.h"
#include "operators/loss_elementwise_gradient.h"
#include "operators/loss_plan.h"

namespace mx {
namespace {

using detail::LossCall;
using kernels::ElementwiseLoss;

// About 2 us of work.
constexpr int64_t kDirectElements = 1024;

const char* const kReductionDoc = "\"none\" (one loss per element), \"mean\" or \"sum\"";

struct LossAttrs {
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("reduction", &LossAttrs::reduction, kReductionDoc);
  }
};

struct HuberAttrs {
  double delta = 1;
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("delta", &HuberAttrs::delta, "the largest |x - target| for which the loss is quadratic; above 0");
    v("reduction", &HuberAttrs::reduction, kReductionDoc);
  }
};

struct SmoothL1Attrs {
  double beta = 1;
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("beta", &SmoothL1Attrs::beta,
      "the |x - target| from which on the loss is linear; 0: linear everywhere");
    v("reduction", &SmoothL1Attrs::reduction, kReductionDoc);
  }
};

struct KlDivAttrs {
  std::string reduction = "mean";
  bool log_target = false;
  template <class V>
  static void fields(V&& v) {
    v("reduction", &KlDivAttrs::reduction,
      "\"none\" (one loss per element), \"mean\", \"sum\" or \"batchmean\" (the sum divided by the size of "
      "the first dimension)");
    v("log_target", &KlDivAttrs::log_target,
      "true: the target holds log-probabilities; false: probabilities");
  }
};

struct HingeAttrs {
  double margin = 1;
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("margin", &HingeAttrs::margin, "the margin, at which the loss becomes 0");
    v("reduction", &HingeAttrs::reduction, kReductionDoc);
  }
};

/// The attributes of the backward operator, which serves all losses.
struct BackwardAttrs {
  std::string loss = "mse";
  double parameter = 0;
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("loss", &BackwardAttrs::loss,
      "\"mse\", \"l1\", \"huber\", \"smooth_l1\", \"bce\", \"bce_with_logits\", \"kl_div\", \"kl_div_log\", "
      "\"hinge\" or "
      "\"hinge_embedding\"");
    v("parameter", &BackwardAttrs::parameter, "the delta, beta or margin of the loss");
    v("reduction", &BackwardAttrs::reduction, "the reduction of the loss");
  }
};
/// In the order of ElementwiseLoss.
const char* const kLossNames[] = {"mse",    "l1",         "huber", "smooth_l1",      "bce", "bce_with_logits",
                                  "kl_div", "kl_div_log", "hinge", "hinge_embedding"};

// Conversion of the losses' attributes. Throw InvalidArgument for invalid values.

template <ElementwiseLoss kLoss>
LossCall meaning(const LossAttrs& a, const char*) {
  return {kLoss, 0, a.reduction};
}
template <ElementwiseLoss>
LossCall meaning(const HuberAttrs& a, const char* op) {
  MX_CHECK(a.delta > 0, InvalidArgument, "[", op, "] expected a delta above 0, got ", a.delta);
  return {ElementwiseLoss::huber, a.delta, a.reduction};
}
template <ElementwiseLoss>
LossCall meaning(const SmoothL1Attrs& a, const char* op) {
  MX_CHECK(a.beta >= 0, InvalidArgument, "[", op, "] expected a beta of at least 0, got ", a.beta);
  return {a.beta == 0 ? ElementwiseLoss::l1 : ElementwiseLoss::smooth_l1, a.beta, a.reduction};
}
template <ElementwiseLoss>
LossCall meaning(const KlDivAttrs& a, const char*) {
  return {a.log_target ? ElementwiseLoss::kl_div_log : ElementwiseLoss::kl_div, 0, a.reduction};
}
template <ElementwiseLoss kLoss>
LossCall meaning(const HingeAttrs& a, const char*) {
  return {kLoss, a.margin, a.reduction};
}
template <ElementwiseLoss>
LossCall meaning(const BackwardAttrs& a, const char* op) {
  const auto* const name = std::find(std::begin(kLossNames), std::end(kLossNames), a.loss);
  MX_CHECK(name != std::end(kLossNames), InvalidArgument, "[", op,
           "] expected the name of an elementwise loss, got \"", a.loss, '"');
  return {static_cast<ElementwiseLoss>(name - kLossNames), a.parameter, a.reduction};
}

/// Checks x, target and weight, inputs `first` and following; returns the loss's shape.
Shape check_operands(const InferContext& c, size_t first, const LossCall& call) {
  const Shape& x = c.shape(first);
  const bool by_batch = call.loss == ElementwiseLoss::kl_div || call.loss == ElementwiseLoss::kl_div_log;
  const std::string& reduction = call.reduction;
  MX_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none" ||
               (by_batch && reduction == "batchmean"),
           InvalidArgument, "[", c.name(), "] expected \"none\", \"mean\"", by_batch ? ", \"batchmean\"" : "",
           " or \"sum\" for the reduction, got \"", reduction, '"');
  MX_CHECK(reduction != "batchmean" || x.rank() > 0, InvalidArgument, "[", c.name(),
           "] expected rank 1 or more for the reduction \"batchmean\", got rank 0");
  MX_CHECK(is_floating(c.dtype(first)), InvalidArgument, "[", c.name(),
           "] expected a floating-point input, got ", c.dtype(first), " of shape ", x);
  MX_CHECK(c.shape(first + 1) == x, InvalidArgument, "[", c.name(),
           "] expected a target of the input's shape ", x, ", got ", c.shape(first + 1));
  if (c.inputs() > first + 2) {
    const Shape& weight = c.shape(first + 2);
    MX_CHECK(call.loss == ElementwiseLoss::bce_with_logits, InvalidArgument, "[", c.name(),
             "] expected a pos_weight only for bce_with_logits, got one for another loss");
    MX_CHECK(broadcast_shapes(weight, x, c.name()) == x, InvalidArgument, "[", c.name(),
             "] expected a pos_weight that broadcasts to ", x, ", got ", weight);
  }
  return call.each() ? x : Shape{};
}

template <class A, ElementwiseLoss kLoss>
void infer(InferContext& c) {
  const Shape loss = check_operands(c, 0, meaning<kLoss>(c.attr<A>(), c.name()));
  c.output(loss, promote(c.dtype(0), c.dtype(1)));
}

void infer_backward(InferContext& c) {
  const Shape loss = check_operands(c, 1, meaning<ElementwiseLoss::mse>(c.attr<BackwardAttrs>(), c.name()));
  MX_CHECK(c.shape(0) == loss && is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected a floating-point gradient of the loss's shape ", loss, ", got ", c.dtype(0), " of ",
           c.shape(0));
  c.output(c.shape(1), c.dtype(1));
}

kernels::ElementwiseLossOptions options_of(const LossCall& call, const Shape& x) {
  return {call.parameter, call.each(), call.divisor(x)};
}

// Variables, because they are null in a build without CUDA, where no kernel has a stream.
const KernelFn kLossOnGpu = cuda::loss_values, kSlopeOnGpu = cuda::loss_derivatives;

template <class A, ElementwiseLoss kLoss>
detail::LossPlanAttrs plan_of(const Attrs& attrs, const Shape& x) {
  const LossCall call = meaning<kLoss>(attrs.get<A>(), "loss");
  return {call.loss, options_of(call, x)};
}

void run_on_gpu(KernelFn kernel, const KernelArgs& args, const LossCall& call, const Shape& x) {
  const Attrs plan = detail::LossPlanAttrs(call.loss, options_of(call, x));
  kernel({args.in, args.out, &plan, args.device, args.stream});
}

template <class A, ElementwiseLoss kLoss>
void run(const KernelArgs& args) {
  const LossCall call = meaning<kLoss>(args.attr<A>(), "loss");
  const Tensor &x = args.in[0], &target = args.in[1];
  if (args.stream != nullptr) return run_on_gpu(kLossOnGpu, args, call, x.shape);
  const Tensor weight = args.in.size() > 2 ? args.in[2].broadcast(x.shape) : Tensor{};
  kernels::elementwise_loss(call.loss, args.out[0], x, target, args.in.size() > 2 ? &weight : nullptr,
                            options_of(call, x.shape));
}

void run_backward(const KernelArgs& args) {
  const LossCall call = meaning<ElementwiseLoss::mse>(args.attr<BackwardAttrs>(), "loss");
  const Tensor &x = args.in[1], &target = args.in[2];
  if (args.stream != nullptr) return run_on_gpu(kSlopeOnGpu, args, call, x.shape);
  const Tensor weight = args.in.size() > 3 ? args.in[3].broadcast(x.shape) : Tensor{};
  kernels::elementwise_loss_backward(call.loss, args.out[0], args.in[0], x, target,
                                     args.in.size() > 3 ? &weight : nullptr, options_of(call, x.shape));
}

template <class A, ElementwiseLoss kLoss>
void gradient(GradientContext& g) {
  detail::gradient_elementwise_loss(g, meaning<kLoss>(g.attr<A>(), "loss"));
}
void gradient_backward(GradientContext& g) {
  detail::gradient_elementwise_loss_backward(g,
                                             meaning<ElementwiseLoss::mse>(g.attr<BackwardAttrs>(), "loss"));
}

template <class A, ElementwiseLoss kLoss>
constexpr Operator record(const char* name, const char* doc) {
  Operator op{.kernel = {name, run<A, kLoss>, cuda::also(run<A, kLoss>), kDirectElements},
              .doc = doc,
              .family = "loss",
              .inputs = {"x", "target"},
              .outputs = {"loss"},
              .attrs = &kAttrType<A>,
              .infer = infer<A, kLoss>,
              .gradient = gradient<A, kLoss>,
              .gradient_uses = {.inputs = bit_set(0, 1, 2)},
              .dtypes = {f32, f64, f16, bf16}};
  if (kLoss == ElementwiseLoss::bce_with_logits) op.inputs.push_back("pos_weight?");
  return op;
}

constexpr Operator kMse =
    record<LossAttrs, ElementwiseLoss::mse>("mse_loss", "Squared error (x - target)^2.");
constexpr Operator kL1 = record<LossAttrs, ElementwiseLoss::l1>("l1_loss", "Absolute error |x - target|.");
constexpr Operator kHuber =
    record<HuberAttrs, ElementwiseLoss::huber>("huber_loss",
                                               "Huber loss: (x - target)^2 / 2 where |x - target| is at most "
                                               "delta, else delta * (|x - target| - delta / 2).");
constexpr Operator kSmoothL1 = record<SmoothL1Attrs, ElementwiseLoss::smooth_l1>(
    "smooth_l1_loss", "Smooth L1 loss: huber_loss with delta = beta, divided by beta; l1_loss if beta is 0.");
constexpr Operator kBce = record<LossAttrs, ElementwiseLoss::bce>(
    "bce_loss", "Binary cross entropy of probabilities x. Logarithms are clamped to at least -100.");
constexpr Operator kBceWithLogits = record<LossAttrs, ElementwiseLoss::bce_with_logits>(
    "bce_with_logits",
    "Binary cross entropy of sigmoid(x), without overflow. The term of the target 1 is multiplied by "
    "pos_weight.");
constexpr Operator kKlDiv = record<KlDivAttrs, ElementwiseLoss::kl_div>(
    "kl_div", "Kullback-Leibler divergence of log-probabilities x: target * (log(target) - x).");
constexpr Operator kHinge = record<HingeAttrs, ElementwiseLoss::hinge>(
    "hinge_loss", "Hinge loss: max(0, margin - x * target), for targets of -1 and 1.");
constexpr Operator kHingeEmbedding = record<HingeAttrs, ElementwiseLoss::hinge_embedding>(
    "hinge_embedding_loss",
    "Hinge embedding loss: x where the target is 1, max(0, margin - x) where it is -1.");

constexpr Operator kBackward = {
    .kernel = {"elementwise_loss_backward", run_backward, cuda::also(run_backward), kDirectElements},
    .doc = "Gradient of an elementwise loss with respect to x.",
    .family = "loss",
    .inputs = {"dloss", "x", "target", "pos_weight?"},
    .outputs = {"dx"},
    .attrs = &kAttrType<BackwardAttrs>,
    .infer = infer_backward,
    .gradient = gradient_backward,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3)},
    .dtypes = {f32, f64, f16, bf16},
};

}  // namespace

namespace detail {

OperatorFamily family_loss_elementwise() {
  return {&kMse,           &kL1,    &kHuber, &kSmoothL1,       &kBce,
          &kBceWithLogits, &kKlDiv, &kHinge, &kHingeEmbedding, &kBackward};
}

LossPlanAttrs loss_plan(const std::string& op, const Attrs& attrs, const Shape& x) {
  using Plan = LossPlanAttrs (*)(const Attrs&, const Shape&);
  static const std::map<std::string, Plan> plans = {
      {kMse.name(), plan_of<LossAttrs, ElementwiseLoss::mse>},
      {kL1.name(), plan_of<LossAttrs, ElementwiseLoss::l1>},
      {kHuber.name(), plan_of<HuberAttrs, ElementwiseLoss::huber>},
      {kSmoothL1.name(), plan_of<SmoothL1Attrs, ElementwiseLoss::smooth_l1>},
      {kBce.name(), plan_of<LossAttrs, ElementwiseLoss::bce>},
      {kBceWithLogits.name(), plan_of<LossAttrs, ElementwiseLoss::bce_with_logits>},
      {kKlDiv.name(), plan_of<KlDivAttrs, ElementwiseLoss::kl_div>},
      {kHinge.name(), plan_of<HingeAttrs, ElementwiseLoss::hinge>},
      {kHingeEmbedding.name(), plan_of<HingeAttrs, ElementwiseLoss::hinge_embedding>},
      {kBackward.name(), plan_of<BackwardAttrs, ElementwiseLoss::mse>}};
  const auto found = plans.find(op);
  MX_CHECK(found != plans.end(), InvalidArgument, "[loss_plan] expected an elementwise loss, got ", op);
  return found->second(attrs, x);
}

NDArray elementwise_loss_backward(const LossCall& c, const NDArray& dloss, const NDArray& x,
                                  const NDArray& target, const NDArray& weight) {
  const Attrs attrs = BackwardAttrs{kLossNames[static_cast<int>(c.loss)], c.parameter, c.reduction};
  if (!weight.defined()) return call(kBackward, attrs, dloss, x, target);
  const NDArray inputs[] = {dloss, x, target, weight};
  return call(kBackward, attrs, inputs)[0];
}

}  // namespace detail

NDArray bce_loss(const Arg& x, const NDArray& target, const std::string& reduction) {
  return call(kBce, LossAttrs{reduction}, x, target);
}
NDArray bce_with_logits(const Arg& x, const NDArray& target, const std::string& reduction,
                        const NDArray& pos_weight) {
  if (!pos_weight.defined()) return call(kBceWithLogits, LossAttrs{reduction}, x, target);
  return call(kBceWithLogits, LossAttrs{reduction}, x, target, pos_weight);
}
NDArray mse_loss(const Arg& x, const NDArray& target, const std::string& reduction) {
  return call(kMse, LossAttrs{reduction}, x, target);
}
NDArray l1_loss(const Arg& x, const NDArray& target, const std::string& reduction) {
  return call(kL1, LossAttrs{reduction}, x, target);
}
NDArray huber_loss(const Arg& x, const NDArray& target, RealArg delta, const std::string& reduction) {
  return call(kHuber, HuberAttrs{delta, reduction}, x, target);
}
NDArray smooth_l1_loss(const Arg& x, const NDArray& target, RealArg beta, const std::string& reduction) {
  return call(kSmoothL1, SmoothL1Attrs{beta, reduction}, x, target);
}
NDArray kl_div(const Arg& x, const NDArray& target, const std::string& reduction, bool log_target) {
  return call(kKlDiv, KlDivAttrs{reduction, log_target}, x, target);
}
NDArray hinge_loss(const Arg& x, const NDArray& target, RealArg margin, const std::string& reduction) {
  return call(kHinge, HingeAttrs{margin, reduction}, x, target);
}
NDArray hinge_embedding_loss(const Arg& x, const NDArray& target, RealArg margin,
                             const std::string& reduction) {
  return call(kHingeEmbedding, HingeAttrs{margin, reduction}, x, target);
}

}  // namespace mx
