// Scaled dot-product attention: softmax(scale * q k' + mask) v, without a matrix of all scores in memory.
//
// Shapes: q (B, H, L, E), k (B, G, S, E) and v (B, G, S, F) give y (B, H, L, F); q (B, L, E), k (B, S, E) and
// v (B, S, F), with one head, give (B, L, F). G divides H: with fewer heads of keys and values than of
// queries, consecutive heads of q share one of them (grouped queries).
//
// Types: f32, f64, f16, bf16, the same for q, k and v. f16 and bf16 are computed in f32 and rounded once.
// Memory: grows with L + S, not with L * S. It does so in the backward pass too, unless second derivatives or
// the gradient of a mask are wanted: then the scores are stored.
//
// A row whose keys are all masked gives zeros.
//
// Self-attention often has its queries, keys and values side by side in one packed array, the result of a
// single projection, as in MultiheadAttention and GPT-2. attention_packed() takes it as it is: the caller
// needs no split, transpose or concat, and the backward pass writes one gradient in the layout of `qkv`.
//
//   NDArray y = attention_packed(linear(x, w), {.heads = 8, .causal = true});   // (B, L, 3 * D) to (B, L, D)
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

class Generator;

struct AttentionAttrs {
  double scale = 0;
  bool causal = false;
  int64_t causal_offset = 0;
  template <class V>
  static void fields(V&& v) {
    v("scale", &AttentionAttrs::scale, "the factor of the scores; 0: 1 / sqrt(E)");
    v("causal", &AttentionAttrs::causal, "query i attends to keys 0 to i + causal_offset only");
    v("causal_offset", &AttentionAttrs::causal_offset,
      "the number of keys before those of the first query, such as the length of a cache");
  }
};
using AttentionOptions = AttentionAttrs;

struct AttentionDropoutAttrs {
  double p = 0.5;
  double scale = 0;
  bool causal = false;
  int64_t causal_offset = 0;
  template <class V>
  static void fields(V&& v) {
    v("p", &AttentionDropoutAttrs::p, "the probability of setting a weight to 0");
    v("scale", &AttentionDropoutAttrs::scale, "the factor of the scores; 0: 1 / sqrt(E)");
    v("causal", &AttentionDropoutAttrs::causal, "query i attends to keys 0 to i + causal_offset only");
    v("causal_offset", &AttentionDropoutAttrs::causal_offset,
      "the number of keys before those of the first query, such as the length of a cache");
  }
};

struct AttentionPackedAttrs {
  int64_t heads = 1;
  int64_t groups = 0;
  bool batch_first = true;
  double scale = 0;
  bool causal = false;
  /// The number of heads of keys and values.
  int64_t key_heads() const { return groups == 0 ? heads : groups; }
  template <class V>
  static void fields(V&& v) {
    v("heads", &AttentionPackedAttrs::heads, "the number of heads of the queries");
    v("groups", &AttentionPackedAttrs::groups,
      "the number of heads of keys and values (grouped queries); 0: `heads`");
    v("batch_first", &AttentionPackedAttrs::batch_first, "arrays are (B, L, ...); otherwise (L, B, ...)");
    v("scale", &AttentionPackedAttrs::scale, "the factor of the scores; 0: 1 / sqrt(E)");
    v("causal", &AttentionPackedAttrs::causal, "query i attends to keys 0 to i only");
  }
};
using AttentionPackedOptions = AttentionPackedAttrs;

/// Returns the attention of q to v. `mask` is empty, or broadcasts to (B, H, L, S) (for q of rank 3: to
/// (B, L, S)): bool, true where a query attends to a key, or floating point, which is added to the scores.
/// Throws InvalidArgument for shapes and types that do not fit.
NDArray scaled_dot_product_attention(const Arg& q, const NDArray& k, const NDArray& v,
                                     const NDArray& mask = {}, const AttentionOptions& options = {});

/// The same with a dropout of the weights: each becomes 0 with probability p, and the others are divided by
/// 1 - p. The choices are those of dropout() for weights (B, H, L, S), from `generator`, or from the device's
/// default generator if it is null. They are made again in the backward pass, not stored.
NDArray attention_with_dropout(const Arg& q, const NDArray& k, const NDArray& v, RealArg p,
                               const NDArray& mask = {}, const AttentionOptions& options = {},
                               Generator* generator = nullptr);

/// The attention of a sequence to itself, with its queries, keys and values in one array.
/// qkv: (B, L, (H + 2 G) * E), with H = heads and G = groups: the heads of the queries, then those of the
/// keys, then those of the values, each of E numbers. The result is (B, L, H * E). With `batch_first` false,
/// B and L change places in both. `mask` broadcasts to (B, H, L, L) in both cases; a mask for each sequence
/// is (B, 1, L, L). Types and memory: as for scaled_dot_product_attention(). Throws InvalidArgument for
/// shapes, numbers of heads and types that do not fit.
NDArray attention_packed(const Arg& qkv, const AttentionPackedOptions& options, const NDArray& mask = {});

}  // namespace mx
