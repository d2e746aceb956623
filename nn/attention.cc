#include "nn/attention.h"

#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/attend.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/attention.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

constexpr const char* kAttentionName = "MultiheadAttention";

Linear output_projection(int64_t width, int64_t heads, const MultiheadAttentionOptions& o) {
  MX_CHECK(width > 0 && heads > 0 && width % heads == 0, InvalidArgument, "[", kAttentionName,
           "] expected a positive width that is a multiple of the number of heads, got width = ", width,
           " and heads = ", heads);
  MX_CHECK(o.dropout >= 0 && o.dropout <= 1, InvalidArgument, "[", kAttentionName,
           "] expected a dropout from 0 to 1, got ", o.dropout);
  MX_CHECK(o.kdim.value_or(1) > 0 && o.vdim.value_or(1) > 0, InvalidArgument, "[", kAttentionName,
           "] expected a positive kdim and vdim, got ", o.kdim.value_or(width), " and ",
           o.vdim.value_or(width));
  MX_CHECK(is_floating(o.dtype), InvalidArgument, "[", kAttentionName,
           "] expected a floating-point type, got ", o.dtype);
  return Linear(width, width, LinearOptions{.bias = o.bias, .context = o.context, .dtype = o.dtype});
}

/// The same array, or two views of the same elements.
bool same_array(const NDArray& a, const NDArray& b) { return a.ref().get() == b.ref().get(); }

/// Sizes of one call.
struct AttendSizes {
  int64_t batch, heads, queries, keys;
};

/// Returns the mask as scaled_dot_product_attention() takes it, of rank 4: of bool, true where a key takes
/// part, or added to the scores. An empty handle if there is no mask.
NDArray combined_mask(const AttendOptions& o, const AttendSizes& n, DType type) {
  const auto check_type = [&](const NDArray& mask, const char* name) {
    MX_CHECK(mask.dtype() == bool_ || is_floating(mask.dtype()), InvalidArgument, "[", kAttentionName,
             "] expected ", name, " of bool or of a floating-point type, got ", mask.dtype());
  };
  NDArray pairs, padding;
  if (o.attn_mask.defined()) {
    check_type(o.attn_mask, "attn_mask");
    const Shape& got = o.attn_mask.shape();
    const Shape flat = {n.queries, n.keys}, each = {n.batch * n.heads, n.queries, n.keys};
    MX_CHECK(got == flat || got == each, InvalidArgument, "[", kAttentionName,
             "] expected attn_mask of shape ", flat, " or ", each, ", got ", got);
    pairs = got == flat ? o.attn_mask.reshape({1, 1, n.queries, n.keys})
                        : o.attn_mask.reshape({n.batch, n.heads, n.queries, n.keys});
  }
  if (o.key_padding_mask.defined()) {
    check_type(o.key_padding_mask, "key_padding_mask");
    const Shape want{n.batch, n.keys}, &got = o.key_padding_mask.shape();
    MX_CHECK(got == want || (n.batch == 1 && got == Shape{n.keys}), InvalidArgument, "[", kAttentionName,
             "] expected key_padding_mask of shape ", want, ", got ", got);
    padding = o.key_padding_mask.reshape({n.batch, 1, 1, n.keys});
  }
  if (!pairs.defined() && !padding.defined()) return {};
  const bool all_bool =
      (!pairs.defined() || pairs.dtype() == bool_) && (!padding.defined() || padding.dtype() == bool_);
  if (all_bool) {
    if (!pairs.defined()) return logical_not(padding);
    return logical_not(padding.defined() ? logical_or(pairs, padding) : pairs);
  }
  const auto added = [&](const NDArray& mask) {
    if (mask.dtype() != bool_) return mask.to(type);
    return where(mask, -std::numeric_limits<double>::infinity(), 0.0).to(type);
  };
  if (!pairs.defined()) return added(padding);
  return padding.defined() ? added(pairs) + added(padding) : added(pairs);
}

NDArray array_or_none(const Parameter& p) { return p.defined() ? p.array() : NDArray{}; }

NDArray projection(const NDArray& x, const NDArray& weight, const NDArray& bias) {
  const Arg input = detail::at_call(x);
  return bias.defined() ? linear(input, weight, bias) : linear(input, weight);
}

/// Appends `count` keys, to which every query attends, to a mask of rank 4.
NDArray with_more_keys(const NDArray& mask, int64_t count) {
  if (!mask.defined() || count == 0) return mask;
  Shape more = mask.shape();
  more[3] = count;
  const NDArray open = mask.dtype() == bool_ ? full(more, true, bool_, mask.context())
                                             : zeros(more, mask.dtype(), mask.context());
  return concat({mask, open}, 3);
}

}  // namespace

MultiheadAttention::MultiheadAttention(IntArg width, IntArg heads, const MultiheadAttentionOptions& o,
                                       std::source_location where) try
    : out_proj(output_projection(width, heads, o)),
      width_(width),
      heads_(heads),
      kdim_(o.kdim.value_or(width)),
      vdim_(o.vdim.value_or(width)),
      dropout_(o.dropout),
      add_zero_attn_(o.add_zero_attn),
      batch_first_(o.batch_first) {
  const auto make = [&](const char* name, const Shape& shape) {
    return add_parameter(name, empty(shape, o.dtype, o.context));
  };
  if (kdim_ == width_ && vdim_ == width_) {
    in_proj_weight = make("in_proj_weight", {3 * width_, width_});
  } else {
    q_proj_weight = make("q_proj_weight", {width_, width_});
    k_proj_weight = make("k_proj_weight", {width_, kdim_});
    v_proj_weight = make("v_proj_weight", {width_, vdim_});
  }
  if (o.bias) in_proj_bias = make("in_proj_bias", {3 * width_});
  if (o.add_bias_kv) {
    bias_k = make("bias_k", {1, 1, width_});
    bias_v = make("bias_v", {1, 1, width_});
  }
  add("out_proj", out_proj);
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void MultiheadAttention::reset_parameters(Generator* generator) {
  for (const Parameter& weight : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
    if (weight.defined()) init::xavier_uniform_(weight, 1, generator);
  out_proj.reset_parameters(generator);
  for (const Parameter& bias : {in_proj_bias, out_proj.bias})
    if (bias.defined()) init::zeros_(bias);
  for (const Parameter& bias : {bias_k, bias_v})
    if (bias.defined()) init::xavier_normal_(bias, 1, generator);
}

bool MultiheadAttention::projects_together(const NDArray& query, const NDArray& key,
                                           const NDArray& value) const {
  return in_proj_weight.defined() && same_array(query, key) && same_array(key, value);
}

MultiheadAttention::Projected MultiheadAttention::project(const NDArray& query, const NDArray& key,
                                                          const NDArray& value) const {
  const NDArray bias = array_or_none(in_proj_bias);
  if (projects_together(query, key, value)) {
    const std::vector<NDArray> parts = split(projection(query, in_proj_weight, bias), int64_t{3}, -1);
    return {parts[0], parts[1], parts[2]};
  }
  const auto part = [&](const NDArray& x, const Parameter& own, int64_t i) {
    const Slice rows{i * width_, (i + 1) * width_};
    const NDArray weight = own.defined() ? own.array() : in_proj_weight.array().slice(0, rows);
    return projection(x, weight, bias.defined() ? bias.slice(0, rows) : bias);
  };
  return {part(query, q_proj_weight, 0), part(key, k_proj_weight, 1), part(value, v_proj_weight, 2)};
}

std::pair<NDArray, NDArray> MultiheadAttention::forward(const NDArray& query, const NDArray& key,
                                                        const NDArray& value, const AttendOptions& options) {
  const bool batched = query.rank() == 3;
  MX_CHECK((query.rank() == 2 || batched) && key.rank() == query.rank() && value.rank() == query.rank(),
           InvalidArgument, "[", kAttentionName,
           "] expected query, key and value all of rank 3, or of rank 2 without a batch, got shapes ",
           query.shape(), ", ", key.shape(), " and ", value.shape());
  const auto last = [](const NDArray& x) { return x.shape()[x.rank() - 1]; };
  MX_CHECK(last(query) == width_ && last(key) == kdim_ && last(value) == vdim_, InvalidArgument, "[",
           kAttentionName, "] expected widths ", width_, ", ", kdim_, " and ", vdim_,
           " of query, key and value, got shapes ", query.shape(), ", ", key.shape(), " and ", value.shape());
  // Arrays that are one array stay one array, so that one product projects all of them. The projections have
  // the layout of their operands, so that the products are those of contiguous rows.
  const bool steps_first = batched && !batch_first_;
  const auto with_batch = [&](const NDArray& x) { return batched ? x : x.expand_dims(0); };
  const NDArray q = with_batch(query), k = same_array(query, key) ? q : with_batch(key),
                v = same_array(query, value) ? q
                    : same_array(key, value) ? k
                                             : with_batch(value);
  const int batch = steps_first ? 1 : 0, steps = 1 - batch;
  MX_CHECK(k.shape()[batch] == q.shape()[batch] && v.shape()[batch] == q.shape()[batch] &&
               v.shape()[steps] == k.shape()[steps],
           InvalidArgument, "[", kAttentionName,
           "] expected one batch size and as many values as keys, got shapes ", query.shape(), ", ",
           key.shape(), " and ", value.shape());
  const AttendSizes n{q.shape()[batch], heads_, q.shape()[steps], k.shape()[steps]};
  const double dropped = train_mode() ? dropout_ : 0;
  if (projects_together(q, k, v) && !bias_k.defined() && !add_zero_attn_ && dropped == 0 &&
      !options.need_weights) {
    const NDArray qkv = projection(q, in_proj_weight, array_or_none(in_proj_bias));
    const NDArray y = attention_packed(
        detail::at_call(qkv), {.heads = heads_, .batch_first = !steps_first, .causal = options.is_causal},
        combined_mask(options, n, qkv.dtype()));
    const NDArray result = out_proj(y, detail::call_site());
    return {batched ? result : result.squeeze(0), {}};
  }
  Projected p = project(q, k, v);
  NDArray mask = combined_mask(options, n, p.q.dtype());
  if (steps_first)
    for (NDArray* x : {&p.q, &p.k, &p.v}) *x = x->swap_axes(0, 1);
  int64_t appended = 0;
  if (bias_k.defined()) {
    const Shape row{n.batch, 1, width_};
    p.k = concat({p.k, bias_k.array().broadcast_to(row)}, 1);
    p.v = concat({p.v, bias_v.array().broadcast_to(row)}, 1);
    ++appended;
  }
  if (add_zero_attn_) {
    const NDArray row = zeros({n.batch, 1, width_}, p.k.dtype(), p.k.context());
    p.k = concat({p.k, row}, 1);
    p.v = concat({p.v, row}, 1);
    ++appended;
  }
  mask = with_more_keys(mask, appended);
  // Appended keys come behind the others, but every query attends to them.
  const bool causal_kernel = options.is_causal && appended == 0;
  if (options.is_causal && appended > 0)
    mask = detail::with_causal(mask, n.queries, n.keys + appended, {.appended = appended}, q.context());
  auto [y, weights] = detail::attend(
      detail::in_heads(p.q, heads_), detail::in_heads(p.k, heads_), detail::in_heads(p.v, heads_),
      {.mask = mask, .causal = causal_kernel, .dropout = dropped, .need_weights = options.need_weights});
  y = out_proj(steps_first ? detail::joined_heads_of_steps(y) : detail::joined_heads(y), detail::call_site());
  if (!batched) y = y.squeeze(0);
  if (!options.need_weights) return {y, {}};
  if (options.average_attn_weights) weights = mean(weights, 1);
  return {y, batched ? weights : weights.squeeze(0)};
}

std::string MultiheadAttention::extra() const {
  return mx::detail::concat("width=", width_, ", heads=", heads_,
                            dropout_ > 0 ? mx::detail::concat(", dropout=", dropout_) : "",
                            batch_first_ ? ", batch_first=true" : "");
}

}  // namespace mx::nn
