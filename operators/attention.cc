#include "operators/attention.h"

#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/numerics.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/attention_form.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/fill_records.h"
#include "operators/kernels/attention.h"
#include "operators/matmul.h"
#include "operators/optional_input.h"
#include "operators/random.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx {
namespace {

kernels::AttentionParams options_of(const AttentionAttrs& attrs, int64_t width) {
  return {detail::attention_scale(attrs.scale, width), attrs.causal, attrs.causal_offset};
}

void infer(InferContext& c) {
  detail::check_attention(c, 0, 3, c.attr<AttentionAttrs>().scale);
  const Shape &q = c.shape(0), &v = c.shape(2);
  c.output({q[0], q[1], q[2], v[3]}, c.dtype(0));
  c.output({q[0], q[1], q[2]}, accumulation_type(c.dtype(0)));
}

void infer_backward(InferContext& c) {
  detail::check_attention_backward(c, 6, c.attr<AttentionAttrs>().scale);
  for (size_t i = 1; i <= 3; ++i) c.output(c.shape(i), c.dtype(1));
}

void run(const KernelArgs& args) {
  kernels::attention(args, args.out[0], args.out[1], args.in[0], args.in[1], args.in[2],
                     detail::optional_input(args, 3),
                     options_of(args.attr<AttentionAttrs>(), args.in[0].shape[3]));
  detail::check_outputs(args, 1);
}

void run_backward(const KernelArgs& args) {
  kernels::attention_backward(args, args.out[0], args.out[1], args.out[2], args.in[0], args.in[1], args.in[2],
                              args.in[3], args.in[4], {.delta = &args.in[5]}, detail::optional_input(args, 6),
                              options_of(args.attr<AttentionAttrs>(), args.in[1].shape[3]));
}

void gradient(GradientContext& g);

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kAttention = {
    // `sums` of a row whose keys are all masked is -infinity, as it should be; run() checks y.
    .kernel = {"attention", run, cuda::attention, 0, false},
    .doc =
        "Scaled dot-product attention, softmax(scale * q k' + mask) v, and the logarithms of the sums of "
        "its exponentials.",
    .family = "attention",
    .inputs = {"q", "k", "v", "mask?"},
    .outputs = {"y", "sums"},
    .attrs = &kAttrType<AttentionAttrs>,
    .infer = infer,
    .gradient = gradient,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3), .outputs = bit_set(0, 1)},
    .dtypes = kFloating,
    .work = detail::attention_work,
};

constexpr Operator kAttentionBackward = {
    .kernel = {"attention_backward", run_backward, cuda::attention_backward},
    .doc = "Gradients of attention with respect to q, k and v. delta is the sum of dy * y over a row.",
    .family = "attention",
    .inputs = {"dy", "q", "k", "v", "sums", "delta", "mask?"},
    .outputs = {"dq", "dk", "dv"},
    .attrs = &kAttrType<AttentionAttrs>,
    .infer = infer_backward,
    .gradient = nullptr,
    .dtypes = kFloating,
    .work = detail::attention_work_backward,
};

void gradient(GradientContext& g) {
  const NDArray dy = g.head_or_zeros(0), delta = detail::attention_delta(g, dy);
  if (grad_enabled() || (g.inputs() > 3 && g.wanted(3)))
    return detail::attention_gradient_by_operators(g, g.attr<AttentionAttrs>(), 3, {}, dy, delta);
  std::vector<NDArray> inputs{dy, g.input(0), g.input(1), g.input(2), g.output(1), delta};
  if (g.inputs() > 3) inputs.push_back(g.input(3));
  const std::vector<NDArray> results = call(kAttentionBackward, g.attr<AttentionAttrs>(), inputs);
  for (size_t i = 0; i < 3; ++i)
    if (g.wanted(i)) g.set(i, results[i]);
}

}  // namespace

namespace detail {
OperatorFamily family_attention() {
  return {&kAttention,       &kAttentionBackward,      &kAttentionDropout, &kAttentionDropoutBackward,
          &kAttentionPacked, &kAttentionPackedBackward};
}
}  // namespace detail

namespace {

/// Calls f(inputs) with arrays of rank 4, and with `mask` as the last one if it is defined.
template <class F>
NDArray with_heads(const NDArray& q, const NDArray& k, const NDArray& v, const NDArray& mask, const F& f) {
  const bool one_head = q.rank() == 3 && k.rank() == 3 && v.rank() == 3;
  const auto with_head = [&](const NDArray& x) { return one_head ? x.expand_dims(1) : x; };
  const NDArray y = f(std::vector<NDArray>{with_head(q), with_head(k), with_head(v)},
                      one_head && mask.defined() && mask.rank() == 3 ? mask.expand_dims(1) : mask);
  return one_head ? y.squeeze(1) : y;
}

}  // namespace

NDArray scaled_dot_product_attention(const Arg& q, const NDArray& k, const NDArray& v, const NDArray& mask,
                                     const AttentionOptions& options) {
  return with_heads(q.array, k, v, mask, [&](std::vector<NDArray> inputs, const NDArray& with_rank) {
    if (mask.defined()) inputs.push_back(with_rank);
    return call(kAttention, options, inputs, q.where)[0];
  });
}

NDArray attention_with_dropout(const Arg& q, const NDArray& k, const NDArray& v, RealArg p,
                               const NDArray& mask, const AttentionOptions& options,
                               Generator* generator) try {
  MX_CHECK(p >= 0 && p <= 1, InvalidArgument,
           "[attention_with_dropout] expected a probability from 0 to 1, got ", p);
  return with_heads(q.array, k, v, mask, [&](std::vector<NDArray> inputs, const NDArray& with_rank) {
    const NDArray &queries = inputs[0], &keys = inputs[1];
    int64_t weights = 0;  // for other ranks the call below throws
    if (queries.rank() == 4 && keys.rank() == 4)
      weights = checked_numel({queries.shape()[0], queries.shape()[1], queries.shape()[2], keys.shape()[2]},
                              1, "attention_with_dropout");
    inputs.push_back(generator_or_default(generator, q.array.context()).key(weights, q.where));
    if (mask.defined()) inputs.push_back(with_rank);
    const AttentionDropoutAttrs attrs{p, options.scale, options.causal, options.causal_offset};
    return call(detail::kAttentionDropout, attrs, inputs, q.where)[0];
  });
} catch (const Error&) {
  detail::rethrow_at(q.where);
}

}  // namespace mx
