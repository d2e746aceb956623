// Attention whose queries, keys and values are side by side in one array.
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/numerics.h"
#include "ndarray/grad_mode.h"
#include "operators/attention_form.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/attention.h"
#include "operators/optional_input.h"
#include "operators/shape_ops.h"

namespace mx::detail {
namespace {

// Inputs: qkv, mask?
constexpr size_t kMaskInput = 1;
// Inputs of the backward operator: dy, qkv, y, sums, mask?
constexpr size_t kMaskOfBackward = 4;

/// (batch, heads, length), with the numbers of queries in place of `heads`.
Shape rows_of(const PackedSizes& n, const Shape& packed) {
  return {packed[n.batch_axis], n.heads, packed[1 - n.batch_axis]};
}

/// Checks input `packed` and the mask, input `mask`, if there is one.
PackedSizes check_packed(const InferContext& c, size_t packed, size_t mask) {
  const auto& a = c.attr<AttentionPackedAttrs>();
  MX_CHECK(a.heads > 0 && a.heads <= std::numeric_limits<int32_t>::max() && a.groups >= 0 &&
               (a.groups == 0 || a.heads % a.groups == 0),
           InvalidArgument, "[", c.name(),
           "] expected 1 to 2^31 - 1 heads and a number of groups that divides them, got heads = ", a.heads,
           " and groups = ", a.groups);
  const Shape& x = c.shape(packed);
  const int64_t all = a.heads + 2 * a.key_heads();
  MX_CHECK(x.rank() == 3 && x[2] % all == 0, InvalidArgument, "[", c.name(), "] expected an array of rank 3 ",
           "whose last dimension is a multiple of heads + 2 * groups = ", all, " (heads = ", a.heads,
           ", groups = ", a.key_heads(), "), got shape ", x);
  MX_CHECK(is_floating(c.dtype(packed)), InvalidArgument, "[", c.name(),
           "] expected an array of a floating-point type, got ", c.dtype(packed));
  const PackedSizes n(a, x);
  const int64_t length = x[1 - n.batch_axis];
  check_attention_options(c, mask, a.scale, c.dtype(packed), {x[n.batch_axis], n.heads, length, length});
  return n;
}

Shape result_shape(const PackedSizes& n, const Shape& packed) {
  return {packed[0], packed[1], n.heads * n.width};
}

void infer_packed(InferContext& c) {
  const PackedSizes n = check_packed(c, 0, kMaskInput);
  c.output(result_shape(n, c.shape(0)), c.dtype(0));
  c.output(rows_of(n, c.shape(0)), accumulation_type(c.dtype(0)));
}

void infer_packed_backward(InferContext& c) {
  const PackedSizes n = check_packed(c, 1, kMaskOfBackward);
  const Shape y = result_shape(n, c.shape(1)), rows = rows_of(n, c.shape(1));
  const DType type = c.dtype(1), sums = accumulation_type(type);
  for (const size_t i : {size_t{0}, size_t{2}})
    MX_CHECK(c.shape(i) == y && c.dtype(i) == type, InvalidArgument, "[", c.name(), "] expected dy and y of ",
             type, " and shape ", y, ", got ", c.dtype(i), ' ', c.shape(i));
  MX_CHECK(c.shape(3) == rows && (c.dtype(3) == sums || c.dtype(3) == type), InvalidArgument, "[", c.name(),
           "] expected sums of ", sums, " and shape ", rows, ", got ", c.dtype(3), ' ', c.shape(3));
  c.output(c.shape(1), type);
}

kernels::AttentionParams params_of(const AttentionPackedAttrs& a, const PackedSizes& n) {
  return {attention_scale(a.scale, n.width), a.causal};
}

void run_packed(const KernelArgs& args) {
  const auto& a = args.attr<AttentionPackedAttrs>();
  const Tensor& qkv = args.in[0];
  const PackedSizes n(a, qkv.shape);
  kernels::attention(args, n.queries(args.out[0]), args.out[1], n.queries(qkv), n.keys(qkv), n.values(qkv),
                     optional_input(args, kMaskInput), params_of(a, n));
  check_outputs(args, 1);
}

void run_packed_backward(const KernelArgs& args) {
  const auto& a = args.attr<AttentionPackedAttrs>();
  const Tensor &qkv = args.in[1], &dqkv = args.out[0];
  const PackedSizes n(a, qkv.shape);
  const Tensor y = n.queries(args.in[2]);
  kernels::attention_backward(args, n.queries(dqkv), n.keys(dqkv), n.values(dqkv), n.queries(args.in[0]),
                              n.queries(qkv), n.keys(qkv), n.values(qkv), args.in[3], {.y = &y},
                              optional_input(args, kMaskOfBackward), params_of(a, n));
}

int64_t work_of(const AttentionPackedAttrs& a, const Shape& packed) {
  const PackedSizes n(a, packed);
  return packed[0] * packed[1] * packed[1 - n.batch_axis] * n.heads * n.width;
}
int64_t packed_work(const InferContext& c) { return 2 * work_of(c.attr<AttentionPackedAttrs>(), c.shape(0)); }
int64_t packed_work_backward(const InferContext& c) {
  return 5 * work_of(c.attr<AttentionPackedAttrs>(), c.shape(1));
}

/// The gradients from stored scores, by operators.
void gradient_by_operators(GradientContext& g, const NDArray& dy) {
  const auto& a = g.attr<AttentionPackedAttrs>();
  const PackedSizes n(a, g.input_shape(0));
  const auto swapped = [&](const NDArray& x) { return a.batch_first ? x : x.swap_axes(0, 1); };
  const NDArray packed = swapped(g.input(0));
  const auto part = [&](int64_t first, int64_t count) {
    return in_heads(packed.slice(2, {first * n.width, (first + count) * n.width}), count);
  };
  const NDArray heads_of_dy = in_heads(swapped(dy), n.heads), y = in_heads(swapped(g.output(0)), n.heads);
  const NDArray delta = attention_delta(heads_of_dy, y, g.head(1), g.output(1).dtype());
  const bool has_mask = g.inputs() > kMaskInput, of_mask = has_mask && g.wanted(kMaskInput);
  const bool of_packed = g.wanted(0);
  const AttentionGradients found = attention_gradients_by_operators(
      {part(0, n.heads), part(n.heads, n.groups), part(n.heads + n.groups, n.groups),
       has_mask ? g.input(kMaskInput) : NDArray{}, g.output(1)},
      {.scale = a.scale, .causal = a.causal}, {}, heads_of_dy, delta,
      {of_packed, of_packed, of_packed, of_mask});
  if (of_packed)
    g.set(0, swapped(mx::concat({joined_heads(found.q), joined_heads(found.k), joined_heads(found.v)}, 2)));
  if (of_mask) g.set(kMaskInput, found.mask);
}

void gradient_packed(GradientContext& g) {
  const NDArray dy = g.head_or_zeros(0);
  const bool has_mask = g.inputs() > kMaskInput;
  if (grad_enabled() || g.head(1).defined() || (has_mask && g.wanted(kMaskInput)))
    return gradient_by_operators(g, dy);
  std::vector<NDArray> inputs{dy, g.input(0), g.output(0), g.output(1)};
  if (has_mask) inputs.push_back(g.input(kMaskInput));
  g.set(0, call(kAttentionPackedBackward, g.attr<AttentionPackedAttrs>(), inputs)[0]);
}

constexpr RecordList<DType, kDTypes> kPackedTypes = {f32, f64, f16, bf16};

}  // namespace

constexpr Operator kAttentionPacked = {
    // As for attention, `sums` of a row whose keys are all masked is -infinity.
    .kernel = {"attention_packed", run_packed, cuda::attention_packed, 0, false},
    .doc =
        "Self-attention of a packed array of queries, keys and values, and the logarithms of the sums of its "
        "exponentials.",
    .family = "attention",
    .inputs = {"qkv", "mask?"},
    .outputs = {"y", "sums"},
    .attrs = &kAttrType<AttentionPackedAttrs>,
    .infer = infer_packed,
    .gradient = gradient_packed,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(0, 1)},
    .dtypes = kPackedTypes,
    .work = packed_work,
};

constexpr Operator kAttentionPackedBackward = {
    .kernel = {"attention_packed_backward", run_packed_backward, cuda::attention_packed_backward},
    .doc = "The gradient of attention_packed with respect to qkv, in its layout.",
    .family = "attention",
    .inputs = {"dy", "qkv", "y", "sums", "mask?"},
    .outputs = {"dqkv"},
    .attrs = &kAttrType<AttentionPackedAttrs>,
    .infer = infer_packed_backward,
    .dtypes = kPackedTypes,
    .work = packed_work_backward,
};

}  // namespace mx::detail

namespace mx {

NDArray attention_packed(const Arg& qkv, const AttentionPackedOptions& options, const NDArray& mask) {
  std::vector<NDArray> inputs{qkv.array};
  if (mask.defined()) inputs.push_back(mask);
  return call(detail::kAttentionPacked, options, inputs, qkv.where)[0];
}

}  // namespace mx
