// Attention with a dropout of the weights. Its choices are a function of the key, so the backward pass makes
// them again.
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/numerics.h"
#include "ndarray/grad_mode.h"
#include "operators/attention_form.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/attention.h"
#include "operators/optional_input.h"

namespace mx::detail {
namespace {

// Inputs: q, k, v, key, mask?
constexpr size_t kKeyInput = 3;
// Inputs of the backward operator: dy, q, k, v, sums, delta, key, mask?
constexpr size_t kKeyOfBackward = 6;

void check_dropout(const InferContext& c, size_t key) {
  const double p = c.attr<AttentionDropoutAttrs>().p;
  MX_CHECK(p >= 0 && p <= 1, InvalidArgument, "[", c.name(), "] expected a probability from 0 to 1, got ", p);
  MX_CHECK(c.dtype(key) == i64 && c.shape(key) == Shape({2}), InvalidArgument, "[", c.name(),
           "] expected a generator's key, i64 (2,), got ", c.dtype(key), ' ', c.shape(key));
}

void infer_dropped(InferContext& c) {
  check_attention(c, 0, kKeyInput + 1, c.attr<AttentionDropoutAttrs>().scale);
  check_dropout(c, kKeyInput);
  const Shape &q = c.shape(0), &v = c.shape(2);
  c.output({q[0], q[1], q[2], v[3]}, c.dtype(0));
  c.output({q[0], q[1], q[2]}, accumulation_type(c.dtype(0)));
}

void infer_dropped_backward(InferContext& c) {
  check_attention_backward(c, kKeyOfBackward + 1, c.attr<AttentionDropoutAttrs>().scale);
  check_dropout(c, kKeyOfBackward);
  for (size_t i = 1; i <= 3; ++i) c.output(c.shape(i), c.dtype(1));
}

kernels::AttentionParams dropped_options(const KernelArgs& args, int64_t width, const Tensor& key) {
  const auto& a = args.attr<AttentionDropoutAttrs>();
  const auto word = [&](int64_t i) { return static_cast<uint64_t>(key.as<int64_t>()[i * key.strides[0]]); };
  return {attention_scale(a.scale, width), a.causal, a.causal_offset, a.p, word(0), word(1)};
}

void run_dropped(const KernelArgs& args) {
  kernels::attention(args, args.out[0], args.out[1], args.in[0], args.in[1], args.in[2],
                     optional_input(args, kKeyInput + 1),
                     dropped_options(args, args.in[0].shape[3], args.in[kKeyInput]));
  check_outputs(args, 1);
}

void run_dropped_backward(const KernelArgs& args) {
  kernels::attention_backward(args, args.out[0], args.out[1], args.out[2], args.in[0], args.in[1], args.in[2],
                              args.in[3], args.in[4], {.delta = &args.in[5]},
                              optional_input(args, kKeyOfBackward + 1),
                              dropped_options(args, args.in[1].shape[3], args.in[kKeyOfBackward]));
}

void gradient_dropped(GradientContext& g) {
  const auto& attrs = g.attr<AttentionDropoutAttrs>();
  const NDArray dy = g.head_or_zeros(0), delta = attention_delta(g, dy);
  const bool has_mask = g.inputs() > kKeyInput + 1;
  if (grad_enabled() || (has_mask && g.wanted(kKeyInput + 1)))
    return attention_gradient_by_operators(g, {attrs.scale, attrs.causal, attrs.causal_offset}, kKeyInput + 1,
                                           {attrs.p, g.input(kKeyInput)}, dy, delta);
  std::vector<NDArray> inputs{dy, g.input(0), g.input(1), g.input(2), g.output(1), delta, g.input(kKeyInput)};
  if (has_mask) inputs.push_back(g.input(kKeyInput + 1));
  const std::vector<NDArray> results = call(kAttentionDropoutBackward, attrs, inputs);
  for (size_t i = 0; i < 3; ++i)
    if (g.wanted(i)) g.set(i, results[i]);
}

constexpr RecordList<DType, kDTypes> kDroppedTypes = {f32, f64, f16, bf16};

}  // namespace

constexpr Operator kAttentionDropout = {
    // As for attention, `sums` of a row whose keys are all masked is -infinity.
    .kernel = {"attention_dropout", run_dropped, cuda::attention_dropout, 0, false},
    .doc =
        "Attention whose weights become 0 with probability p and are divided by 1 - p otherwise, and the "
        "logarithms of the sums of its exponentials.",
    .family = "attention",
    .inputs = {"q", "k", "v", "key", "mask?"},
    .outputs = {"y", "sums"},
    .attrs = &kAttrType<AttentionDropoutAttrs>,
    .infer = infer_dropped,
    .gradient = gradient_dropped,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3, 4), .outputs = bit_set(0, 1)},
    .dtypes = kDroppedTypes,
    .work = attention_work,
};

constexpr Operator kAttentionDropoutBackward = {
    .kernel = {"attention_dropout_backward", run_dropped_backward, cuda::attention_dropout_backward},
    .doc =
        "Gradients of attention_dropout with respect to q, k and v. delta is the sum of dy * y over a row.",
    .family = "attention",
    .inputs = {"dy", "q", "k", "v", "sums", "delta", "key", "mask?"},
    .outputs = {"dq", "dk", "dv"},
    .attrs = &kAttrType<AttentionDropoutAttrs>,
    .infer = infer_dropped_backward,
    .dtypes = kDroppedTypes,
    .work = attention_work_backward,
};

}  // namespace mx::detail
