#include "operators/attention_form.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/fill_records.h"
#include "operators/matmul.h"
#include "operators/random_records.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx::detail {
namespace {

bool broadcasts_to(const Shape& shape, const Shape& target) {
  const int missing = target.rank() - shape.rank();
  if (missing < 0) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != 1 && shape[i] != target[missing + i]) return false;
  return true;
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

NDArray columns_first(const NDArray& x) { return x.swap_axes(-1, -2); }

}  // namespace

NDArray in_heads(const NDArray& x, int64_t heads) {
  const Shape& s = x.shape();
  return x.reshape({s[0], s[1], heads, s[2] / heads}).swap_axes(1, 2);
}

NDArray joined_heads(const NDArray& x) {
  const Shape& s = x.shape();
  return x.swap_axes(1, 2).reshape({s[0], s[2], s[1] * s[3]});
}

NDArray causal_mask(int64_t queries, int64_t keys, int64_t offset, Context context) {
  const NDArray i = arange(0, queries, i64, context).reshape({queries, 1}), j = arange(0, keys, i64, context);
  return less_equal(j, i + std::clamp(offset, -queries, keys));  // beyond, nothing changes
}

void check_attention(const InferContext& c, size_t first, size_t mask, double scale) {
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
  check_attention_options(c, mask, scale, type, {q[0], q[1], q[2], k[2]});
}

void check_attention_options(const InferContext& c, size_t mask, double scale, DType type,
                             const Shape& scores) {
  MX_CHECK(std::isfinite(scale), InvalidArgument, "[", c.name(), "] expected a finite scale, got ", scale);
  if (c.inputs() <= mask) return;
  MX_CHECK(c.dtype(mask) == bool_ || c.dtype(mask) == type, InvalidArgument, "[", c.name(),
           "] expected a mask of bool or of the type of q, ", type, ", got ", c.dtype(mask));
  MX_CHECK(broadcasts_to(c.shape(mask), scores), InvalidArgument, "[", c.name(),
           "] expected a mask that broadcasts to the shape of the scores, ", scores, ", got ", c.shape(mask));
}

void check_attention_backward(const InferContext& c, size_t mask, double scale) {
  check_attention(c, 1, mask, scale);
  const Shape &q = c.shape(1), &v = c.shape(3), rows{q[0], q[1], q[2]};
  const DType type = c.dtype(1), sums = accumulation_type(type);
  MX_CHECK((c.shape(0) == Shape{q[0], q[1], q[2], v[3]}) && c.dtype(0) == type, InvalidArgument, "[",
           c.name(), "] expected dy of the shape of y and of ", type, ", got ", c.dtype(0), ' ', c.shape(0));
  for (const size_t i : {size_t{4}, size_t{5}})
    MX_CHECK(c.shape(i) == rows && (c.dtype(i) == sums || c.dtype(i) == type), InvalidArgument, "[", c.name(),
             "] expected sums and delta of ", sums, " and shape ", rows, ", got ", c.dtype(i), ' ',
             c.shape(i));
}

int64_t attention_work(const InferContext& c) {
  const Shape &q = c.shape(0), &k = c.shape(1), &v = c.shape(2);
  return q[0] * q[1] * q[2] * k[2] * (q[3] + v[3]);
}

int64_t attention_work_backward(const InferContext& c) {
  const Shape &q = c.shape(1), &k = c.shape(2), &v = c.shape(3);
  return q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3]);
}

NDArray attention_delta(const NDArray& dy, const NDArray& y, const NDArray& dsums, DType type) {
  const NDArray delta = sum(dy.to(type) * y.to(type), -1);
  return dsums.defined() ? delta - dsums : delta;
}

NDArray attention_delta(GradientContext& g, const NDArray& dy) {
  return attention_delta(dy, g.output(0), g.head(1), g.output(1).dtype());
}

AttentionGradients attention_gradients_by_operators(const AttentionArrays& of, const AttentionAttrs& attrs,
                                                    const DroppedWeights& dropped, const NDArray& dy,
                                                    const NDArray& delta, const AttentionWanted& wanted) {
  // The sums are those of scores that were not rounded, so 16-bit types are computed in f32 here, too.
  const NDArray& sums = of.sums;
  const DType type = sums.dtype();
  const NDArray q = of.q.to(type), head = dy.to(type);
  const int64_t heads = q.shape()[1], groups = of.k.shape()[1];
  const NDArray k = for_all_heads(of.k.to(type), heads), v = for_all_heads(of.v.to(type), heads);
  const double scale = attention_scale(attrs.scale, q.shape()[3]);
  const NDArray no_key = less(sums, -std::numeric_limits<double>::max()).expand_dims(-1);
  NDArray scores = matmul(q, columns_first(k)) * scale;
  NDArray out = no_key;  // true where a weight is zero because of a mask
  if (attrs.causal)
    out = logical_or(out,
                     logical_not(causal_mask(q.shape()[2], k.shape()[2], attrs.causal_offset, q.context())));
  if (of.mask.defined()) {
    if (of.mask.dtype() == bool_)
      out = logical_or(out, logical_not(of.mask));
    else
      scores = scores + of.mask;
  }
  // Where a weight is zero, exp() must not see the score: it may be infinite.
  const NDArray inside = where(out, 0, scores - where(no_key, 0, sums.expand_dims(-1)));
  const NDArray weights = where(out, 0, exp(inside));
  NDArray kept_weights = weights, dweights = matmul(head, columns_first(v));
  if (dropped.key.defined()) {
    const NDArray inputs[] = {zeros(weights.shape(), type, weights.context()), dropped.key};
    const NDArray keep = call(kDropout, DropoutAttrs{dropped.p}, inputs)[1];
    const double factor = dropped.p < 1 ? 1 / (1 - dropped.p) : 0;
    kept_weights = where(keep, weights * factor, 0);
    dweights = where(keep, dweights * factor, 0);
  }
  const NDArray dscores = weights * (dweights - delta.expand_dims(-1));
  AttentionGradients found;
  if (wanted.q) found.q = matmul(dscores, k) * scale;
  if (wanted.k) found.k = over_groups(matmul(columns_first(dscores), q) * scale, groups);
  if (wanted.v) found.v = over_groups(matmul(columns_first(kept_weights), head), groups);
  if (wanted.mask) found.mask = dscores;
  return found;
}

void attention_gradient_by_operators(GradientContext& g, const AttentionAttrs& attrs, size_t mask_input,
                                     const DroppedWeights& dropped, const NDArray& dy, const NDArray& delta) {
  const bool has_mask = g.inputs() > mask_input;
  const AttentionWanted wanted{g.wanted(0), g.wanted(1), g.wanted(2), has_mask && g.wanted(mask_input)};
  const AttentionGradients found = attention_gradients_by_operators(
      {g.input(0), g.input(1), g.input(2), has_mask ? g.input(mask_input) : NDArray{}, g.output(1)}, attrs,
      dropped, dy, delta, wanted);
  if (wanted.q) g.set(0, found.q);
  if (wanted.k) g.set(1, found.k);
  if (wanted.v) g.set(2, found.v);
  if (wanted.mask) g.set(mask_input, found.mask);
}

}  // namespace mx::detail
