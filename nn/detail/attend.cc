#include "nn/detail/attend.h"

#include <cmath>
#include <limits>

#include "nn/detail/call_site.h"
#include "operators/attention.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/random.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/softmax.h"

namespace mx::nn::detail {
namespace {

constexpr double kOut = -std::numeric_limits<double>::infinity();

/// Rows without keys are zeros.
NDArray stored_weights(const NDArray& q, const NDArray& k, const NDArray& mask) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.shape()[3]));
  NDArray scores = matmul(at_call(q * scale), k.swap_axes(-1, -2));
  if (!mask.defined()) return softmax(scores, -1);
  scores = mask.dtype() == bool_ ? where(mask, scores, kOut) : scores + mask;
  // A row of -infinity would give NaN, in the gradient too.
  const NDArray open = any(not_equal(scores, kOut), -1, true);
  return where(open, softmax(where(open, scores, 0.0), -1), 0.0);
}

}  // namespace

NDArray with_causal(const NDArray& mask, int64_t queries, int64_t keys, const CausalKeys& causal,
                    Context context) {
  NDArray part = mx::detail::causal_mask(queries, keys, causal.offset, context);
  if (causal.appended > 0)
    part = logical_or(part, greater_equal(arange(0, keys, i64, context), keys - causal.appended));
  if (!mask.defined()) return part;
  return mask.dtype() == bool_ ? logical_and(mask, part) : where(part, mask, kOut);
}

NDArray joined_heads_of_steps(const NDArray& x) {
  const Shape& s = x.shape();
  return x.swap_axes(1, 2).swap_axes(0, 1).reshape({s[2], s[0], s[1] * s[3]});
}

std::pair<NDArray, NDArray> attend(const NDArray& q, const NDArray& k, const NDArray& v,
                                   const AttendCall& o) {
  if (!o.need_weights && o.dropout == 0)
    return {scaled_dot_product_attention(at_call(q), k, v, o.mask,
                                         {.causal = o.causal, .causal_offset = o.causal_offset}),
            {}};
  if (!o.need_weights)
    return {attention_with_dropout(at_call(q), k, v, o.dropout, o.mask,
                                   {.causal = o.causal, .causal_offset = o.causal_offset}),
            {}};
  const NDArray mask =
      o.causal ? with_causal(o.mask, q.shape()[2], k.shape()[2], {.offset = o.causal_offset}, q.context())
               : o.mask;
  NDArray weights = stored_weights(q, k, mask);
  if (o.dropout > 0) weights = dropout(at_call(weights), o.dropout, true, nullptr);
  return {matmul(at_call(weights), v), weights};
}

}  // namespace mx::nn::detail
