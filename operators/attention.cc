#include "operators/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/fill_records.h"
#include "operators/kernels/attention.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx {
namespace {

double scale_of(const AttentionAttrs& attrs, int64_t width) {
  if (attrs.scale != 0) return attrs.scale;
  return width > 0 ? 1 / std::sqrt(static_cast<double>(width)) : 1;
}

kernels::AttentionOptions options_of(const AttentionAttrs& attrs, int64_t width) {
  return {scale_of(attrs, width), attrs.causal, attrs.causal_offset};
}

DType type_of_sums(DType type) { return type == f64 ? f64 : f32; }

bool broadcasts_to(const Shape& shape, const Shape& target) {
  const int missing = target.rank() - shape.rank();
  if (missing < 0) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1 && shape[i] != target[missing + i]) return false;
  return true;
}

/// Checks q, k, v, which are inputs `first` and following, and the mask, input `mask`.
void check_operands(InferContext& c, size_t first, size_t mask) {
  const Shape &q = c.shape(first), &k = c.shape(first + 1), &v = c.shape(first + 2);
  const DType type = c.dtype(first);
  MX_CHECK(is_floating(type) && c.dtype(first + 1) == type && c.dtype(first + 2) == type, InvalidArgument,
           "[", c.name(), "] expected queries, keys and values of one floating-point type, got ", type, ", ",
           c.dtype(first + 1), " and ", c.dtype(first + 2));
  MX_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4 && k[0] == q[0] && v[0] == q[0] && k[1] == v[1] &&
               k[2] == v[2] && k[3] == q[3],
           InvalidArgument, "[", c.name(),
           "] expected q (B, H, L, E), k (B, G, S, E) and v (B, G, S, F), got q ", q, ", k ", k, " and v ",
           v);
  MX_CHECK(k[1] == 0 ? q[1] == 0 : q[1] % k[1] == 0, InvalidArgument, "[", c.name(),
           "] expected a number of heads of q that is a multiple of that of k and v, got ", q[1], " and ",
           k[1]);
  const double scale = c.attr<AttentionAttrs>().scale;
  MX_CHECK(std::isfinite(scale), InvalidArgument, "[", c.name(), "] expected a finite scale, got ", scale);
  if (c.inputs() <= mask) return;
  const Shape scores{q[0], q[1], q[2], k[2]};
  MX_CHECK(c.dtype(mask) == bool_ || c.dtype(mask) == type, InvalidArgument, "[", c.name(),
           "] expected a mask of bool or of the type of q, ", type, ", got ", c.dtype(mask));
  MX_CHECK(broadcasts_to(c.shape(mask), scores), InvalidArgument, "[", c.name(),
           "] expected a mask that broadcasts to the shape of the scores, ", scores, ", got ", c.shape(mask));
}

void infer(InferContext& c) {
  check_operands(c, 0, 3);
  const Shape &q = c.shape(0), &v = c.shape(2);
  c.output({q[0], q[1], q[2], v[3]}, c.dtype(0));
  c.output({q[0], q[1], q[2]}, type_of_sums(c.dtype(0)));
}

void infer_backward(InferContext& c) {
  check_operands(c, 1, 6);
  const Shape &q = c.shape(1), &v = c.shape(3), rows{q[0], q[1], q[2]};
  const DType type = c.dtype(1), sums = type_of_sums(type);
  MX_CHECK((c.shape(0) == Shape{q[0], q[1], q[2], v[3]}) && c.dtype(0) == type, InvalidArgument, "[",
           c.name(), "] expected dy of the shape of y and of ", type, ", got ", c.dtype(0), ' ', c.shape(0));
  for (const size_t i : {size_t{4}, size_t{5}})
    MX_CHECK(c.shape(i) == rows && (c.dtype(i) == sums || c.dtype(i) == type), InvalidArgument, "[", c.name(),
             "] expected sums and delta of ", sums, " and shape ", rows, ", got ", c.dtype(i), ' ',
             c.shape(i));
  for (size_t i = 1; i <= 3; ++i) c.output(c.shape(i), type);
}

const Tensor* optional_input(const KernelArgs& args, size_t i) {
  return args.in.size() > i ? &args.in[i] : nullptr;
}

void run(const KernelArgs& args) {
  kernels::attention(args, args.out[0], args.out[1], args.in[0], args.in[1], args.in[2],
                     optional_input(args, 3), options_of(args.attr<AttentionAttrs>(), args.in[0].shape[3]));
}

void run_backward(const KernelArgs& args) {
  kernels::attention_backward(args, args.out[0], args.out[1], args.out[2], args.in[0], args.in[1], args.in[2],
                              args.in[3], args.in[4], args.in[5], optional_input(args, 6),
                              options_of(args.attr<AttentionAttrs>(), args.in[1].shape[3]));
}

int64_t work(const InferContext& c) {
  const Shape &q = c.shape(0), &k = c.shape(1), &v = c.shape(2);
  return q[0] * q[1] * q[2] * k[2] * (q[3] + v[3]);
}

int64_t work_backward(const InferContext& c) {
  const Shape &q = c.shape(1), &k = c.shape(2), &v = c.shape(3);
  return q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3]);
}

/// Repeats the heads of keys or values for the heads of q that share them.
NDArray for_all_heads(const NDArray& x, int64_t heads) {
  if (x.shape()[1] == heads) return x;
  return repeat(x, heads / x.shape()[1], 1);
}

/// The reverse of for_all_heads() for gradients: sums over the heads that share one.
NDArray over_groups(const NDArray& gradient, int64_t groups) {
  const Shape& s = gradient.shape();
  if (s[1] == groups) return gradient;
  return sum(gradient.reshape({s[0], groups, s[1] / groups, s[2], s[3]}), 2);
}

NDArray transposed(const NDArray& x) { return x.swap_axes(-1, -2); }

/// The mask of a causal call, true where a key takes part: (L, S).
NDArray causal_mask(int64_t rows, int64_t keys, int64_t offset, Context context) {
  const NDArray i = arange(0, rows, i64, context).reshape({rows, 1}), j = arange(0, keys, i64, context);
  return less_equal(j, i + offset);
}

/// The gradients from stored scores, by operators: for gradients of gradients, and for the mask.
void gradient_by_operators(GradientContext& g, const NDArray& dy, const NDArray& delta) {
  const auto& attrs = g.attr<AttentionAttrs>();
  // The sums are those of scores that were not rounded, so 16-bit types are computed in f32 here, too.
  const NDArray& sums = g.output(1);
  const DType type = sums.dtype();
  const NDArray q = g.input(0).to(type), head = dy.to(type);
  const int64_t heads = q.shape()[1], groups = g.input(1).shape()[1];
  const NDArray k = for_all_heads(g.input(1).to(type), heads), v = for_all_heads(g.input(2).to(type), heads);
  const double scale = scale_of(attrs, q.shape()[3]);
  const NDArray no_key = less(sums, -std::numeric_limits<double>::max()).expand_dims(-1);
  NDArray scores = matmul(q, transposed(k)) * scale;
  NDArray out = no_key;  // true where a weight is zero because of a mask
  if (attrs.causal)
    out = logical_or(out,
                     logical_not(causal_mask(q.shape()[2], k.shape()[2], attrs.causal_offset, q.context())));
  if (g.inputs() > 3) {
    const NDArray& mask = g.input(3);
    if (mask.dtype() == bool_)
      out = logical_or(out, logical_not(mask));
    else
      scores = scores + mask;
  }
  // Where a weight is zero, exp() must not see the score: it may be infinite.
  const NDArray inside = where(out, 0, scores - where(no_key, 0, sums.expand_dims(-1)));
  const NDArray weights = where(out, 0, exp(inside));
  const NDArray dscores = weights * (matmul(head, transposed(v)) - delta.expand_dims(-1));
  if (g.wanted(0)) g.set(0, matmul(dscores, k) * scale);
  if (g.wanted(1)) g.set(1, over_groups(matmul(transposed(dscores), q) * scale, groups));
  if (g.wanted(2)) g.set(2, over_groups(matmul(transposed(weights), head), groups));
  if (g.inputs() > 3 && g.wanted(3)) g.set(3, dscores);
}

void gradient(GradientContext& g);

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kAttention = {
    .kernel = {"attention", run, cuda::attention},
    .doc =
        "Scaled dot-product attention, softmax(scale * q k' + mask) v, and the logarithms of the sums of "
        "its exponentials.",
    .family = "attention",
    .inputs = {"q", "k", "v", "mask?"},
    .outputs = {"y", "sums"},
    .attrs = &kAttrType<AttentionAttrs>,
    .infer = infer,
    .gradient = gradient,
    .gradient_uses = {.inputs = 15, .outputs = 3},
    .dtypes = kFloating,
    .work = work,
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
    .work = work_backward,
};

void gradient(GradientContext& g) {
  const DType sums_type = g.output(1).dtype();
  const NDArray dy = g.head_or_zeros(0);
  NDArray delta = sum(dy.to(sums_type) * g.output(0).to(sums_type), -1);
  if (g.head(1).defined()) delta = delta - g.head(1);
  const bool mask_wanted = g.inputs() > 3 && g.wanted(3);
  if (grad_enabled() || mask_wanted) return gradient_by_operators(g, dy, delta);
  std::vector<NDArray> inputs{dy, g.input(0), g.input(1), g.input(2), g.output(1), delta};
  if (g.inputs() > 3) inputs.push_back(g.input(3));
  const std::vector<NDArray> results = call(kAttentionBackward, g.attr<AttentionAttrs>(), inputs);
  for (size_t i = 0; i < 3; ++i)
    if (g.wanted(i)) g.set(i, results[i]);
}

}  // namespace

namespace detail {
OperatorFamily family_attention() { return {&kAttention, &kAttentionBackward}; }
}  // namespace detail

NDArray scaled_dot_product_attention(const Arg& q, const NDArray& k, const NDArray& v, const NDArray& mask,
                                     const AttentionOptions& options) {
  const bool one_head = q.array.rank() == 3 && k.rank() == 3 && v.rank() == 3;
  const auto with_head = [&](const NDArray& x) { return one_head ? x.expand_dims(1) : x; };
  std::vector<NDArray> inputs{with_head(q.array), with_head(k), with_head(v)};
  if (mask.defined()) inputs.push_back(one_head && mask.rank() == 3 ? mask.expand_dims(1) : mask);
  const NDArray y = call(kAttention, options, inputs, q.where)[0];
  return one_head ? y.squeeze(1) : y;
}

}  // namespace mx
