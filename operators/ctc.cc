#include "operators/ctc.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/kernels/ctc.h"
#include "operators/reduce.h"
#include "operators/temporary.h"

namespace mx {
namespace {

/// Checks log_probs, targets and lengths, the inputs from `first` on.
void check_operands(const InferContext& c, size_t first) {
  const Shape &x = c.shape(first), &targets = c.shape(first + 1);
  MX_CHECK(x.rank() == 3 && is_floating(c.dtype(first)), InvalidArgument, "[", c.name(),
           "] expected floating-point log-probabilities (steps, batch, classes), got ", c.dtype(first),
           " of shape ", x);
  const int64_t batch = x[1], blank = c.attr<CtcAttrs>().blank;
  MX_CHECK(blank >= 0 && blank < x[2], InvalidArgument, "[", c.name(), "] expected a blank from 0 to ",
           x[2] - 1, ", one of the classes, got ", blank);
  for (size_t i = first + 1; i < first + 4; ++i)
    MX_CHECK(is_integral(c.dtype(i)), InvalidArgument, "[", c.name(),
             "] expected integers as targets and lengths, got ", c.dtype(i));
  MX_CHECK(targets.rank() == 1 || (targets.rank() == 2 && targets[0] == batch), InvalidArgument, "[",
           c.name(), "] expected targets (", batch, ", most labels) or of rank 1, got shape ", targets);
  for (size_t i = first + 2; i < first + 4; ++i)
    MX_CHECK(c.shape(i) == Shape{batch}, InvalidArgument, "[", c.name(),
             "] expected one length for each of the ", batch, " samples, got shape ", c.shape(i));
}

void infer_ctc(InferContext& c) {
  check_operands(c, 0);
  c.output({c.shape(0)[1]}, c.dtype(0));
}

void infer_ctc_backward(InferContext& c) {
  check_operands(c, 1);
  MX_CHECK(c.shape(0) == Shape{c.shape(1)[1]} && is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected a floating-point gradient of shape (", c.shape(1)[1], ",), got ", c.dtype(0),
           " of shape ", c.shape(0));
  c.output(c.shape(1), c.dtype(1));
}

/// Calls f with the operands, whose integers are converted to i64.
template <class F>
void with_operands(const KernelArgs& args, size_t first, const F& f) {
  const detail::Converted targets(args.in[first + 1], i64), inputs(args.in[first + 2], i64),
      lengths(args.in[first + 3], i64);
  const auto& attrs = args.attr<CtcAttrs>();
  f(kernels::CtcArgs{args.in[first], *targets, *inputs, *lengths, attrs.blank, attrs.zero_infinity});
}

void run_ctc(const KernelArgs& args) {
  with_operands(args, 0, [&](const kernels::CtcArgs& ctc) { kernels::ctc_loss(args.out[0], ctc); });
}

void run_ctc_backward(const KernelArgs& args) {
  with_operands(args, 1, [&](const kernels::CtcArgs& ctc) {
    kernels::ctc_loss_backward(args.out[0], args.in[0], ctc);
  });
}

int64_t work_ctc(const InferContext& c) {
  const size_t first = c.inputs() - 4;
  const Shape &x = c.shape(first), &targets = c.shape(first + 1);
  const int64_t labels = targets.rank() == 2 ? targets[1] : targets[0] / std::max<int64_t>(1, x[1]);
  return x[0] * x[1] * (2 * labels + 1) * 32;
}

void gradient_ctc(GradientContext& g);

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};
constexpr int64_t kDirectWork = 1 << 12;

constexpr Operator kCtcLoss = {
    .kernel = {"ctc_loss", run_ctc, cuda::ctc_loss, kDirectWork, false},
    .doc = "Negative logarithm of the probability of label sequences, summed over all alignments (CTC).",
    .family = "loss",
    .inputs = {"log_probs", "targets", "input_lengths", "target_lengths"},
    .outputs = {"loss"},
    .attrs = &kAttrType<CtcAttrs>,
    .infer = infer_ctc,
    .gradient = gradient_ctc,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3)},
    .dtypes = kFloating,
    .work = work_ctc,
    .sized_by_values = true,
};

constexpr Operator kCtcLossBackward = {
    .kernel = {"ctc_loss_backward", run_ctc_backward, cuda::ctc_loss_backward, kDirectWork, false},
    .doc = "Gradient of ctc_loss with respect to the log-probabilities.",
    .family = "loss",
    .inputs = {"dloss", "log_probs", "targets", "input_lengths", "target_lengths"},
    .outputs = {"dlog_probs"},
    .attrs = &kAttrType<CtcAttrs>,
    .infer = infer_ctc_backward,
    .dtypes = kFloating,
    .work = work_ctc,
    .sized_by_values = true,
};

void gradient_ctc(GradientContext& g) {
  if (!g.wanted(0)) return;
  const NDArray inputs[] = {g.head(), g.input(0), g.input(1), g.input(2), g.input(3)};
  g.set(0, call(kCtcLossBackward, g.attr<CtcAttrs>(), inputs)[0]);
}

}  // namespace

namespace detail {
OperatorFamily family_ctc() { return {&kCtcLoss, &kCtcLossBackward}; }
}  // namespace detail

NDArray ctc_loss(const Arg& log_probs, const NDArray& targets, const NDArray& input_lengths,
                 const NDArray& target_lengths, const CtcOptions& options) try {
  const std::string& reduction = options.reduction;
  MX_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", InvalidArgument,
           "[ctc_loss] expected \"none\", \"mean\" or \"sum\" for the reduction, got \"", reduction, '"');
  const bool batched = log_probs.array.rank() != 2;
  const auto vector = [&](const NDArray& a) { return batched || a.rank() != 0 ? a : a.reshape({1}); };
  const NDArray inputs[] = {batched ? log_probs.array : log_probs.array.expand_dims(1), targets,
                            vector(input_lengths), vector(target_lengths)};
  const NDArray losses =
      call(kCtcLoss, CtcAttrs{options.blank, options.zero_infinity}, inputs, log_probs.where)[0];
  if (reduction == "none") return batched ? losses : losses.reshape({});
  if (reduction == "sum") return sum(losses);
  return mean(losses / maximum(inputs[3], 1).to(losses.dtype()));
} catch (const Error&) {
  detail::rethrow_at(log_probs.where);
}

}  // namespace mx
