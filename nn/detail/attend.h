// Attention of several heads on projected arrays: what MultiheadAttention and models of their own projections
// share. Internal.
#pragma once

#include <cstdint>
#include <utility>

#include "ndarray/ndarray.h"
#include "operators/attention_form.h"

namespace mx::nn::detail {

using mx::detail::in_heads;
using mx::detail::joined_heads;
/// As joined_heads(), with the length first: (length, batch, width), a copy.
NDArray joined_heads_of_steps(const NDArray& x);

/// The keys to which query i of a causal call attends: 0 to i + offset, and the last `appended` ones.
struct CausalKeys {
  int64_t offset = 0;
  int64_t appended = 0;
};
/// Restricts `mask`, as scaled_dot_product_attention() takes it, to those keys. Without a mask: of shape
/// (queries, keys).
NDArray with_causal(const NDArray& mask, int64_t queries, int64_t keys, const CausalKeys& causal,
                    Context context);

struct AttendCall {
  NDArray mask{};       ///< as scaled_dot_product_attention() takes it, of rank 4 or 2
  bool causal = false;  ///< query i attends to the keys 0 to i + causal_offset
  int64_t causal_offset = 0;
  double dropout = 0;         ///< probability with which a weight becomes 0; 0 in predict mode
  bool need_weights = false;  ///< otherwise the second result is an empty handle
};
/// Returns the attention of q (batch, heads, queries, n) to k and v, and the weights after the dropout,
/// (batch, heads, queries, keys). Stores the scores of all pairs only for weights.
std::pair<NDArray, NDArray> attend(const NDArray& q, const NDArray& k, const NDArray& v,
                                   const AttendCall& options);

}  // namespace mx::nn::detail
