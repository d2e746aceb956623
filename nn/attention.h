// MultiheadAttention, with the names, layouts and defaults of torch.nn.MultiheadAttention.
//
//   nn::MultiheadAttention attend(64, 8, {.batch_first = true});
//   auto [y, weights] = attend(q, k, v);                                        // weights: mean of the heads
//   NDArray z = attend(x, x, x, {.need_weights = false, .is_causal = true}).first;   // the fast way
//
// Masks are those of PyTorch: in a mask of bool, true means that the key is masked. (The function
// scaled_dot_product_attention() has it the other way round, also as in PyTorch.)
//
// Memory grows with the lengths, not with their product, unless `need_weights` is set: then the scores of all
// pairs are stored.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include "nn/linear.h"
#include "nn/module.h"

namespace mx::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;             ///< probability with which a weight is set to 0 in training mode
  bool bias = true;               ///< of the projections
  bool add_bias_kv = false;       ///< appends a trainable key and a trainable value to each sequence
  bool add_zero_attn = false;     ///< appends a key and a value of zeros to each sequence
  std::optional<int64_t> kdim{};  ///< width of the keys; none: that of the queries
  std::optional<int64_t> vdim{};  ///< width of the values; none: that of the queries
  bool batch_first = false;       ///< arrays are (batch, length, width), not (length, batch, width)
  Context context = cpu();
  DType dtype = f32;
};

/// Options of one call.
struct AttendOptions {
  NDArray key_padding_mask{};  ///< (batch, keys); without a batch (keys,)
  bool need_weights = true;    ///< return the weights, too; false is faster
  /// (queries, keys) or (batch * heads, queries, keys). Masks of a floating-point type are added to the
  /// scores.
  NDArray attn_mask{};
  bool average_attn_weights = true;  ///< false: the weights of each head
  /// Query i attends to the keys 0 to i only. In addition to `attn_mask`, which may be left out.
  bool is_causal = false;

  template <class V>
  void arrays(V&& visit) {
    visit(key_padding_mask);
    visit(attn_mask);
  }
};

/// Attention of several heads, each with width / heads numbers of a projection of queries, keys and values.
///
/// Parameters: in_proj_weight (3 width, width), or q_proj_weight (width, width), k_proj_weight (width, kdim)
/// and v_proj_weight (width, vdim) if kdim or vdim differs, all uniform as init::xavier_uniform_ says;
/// in_proj_bias (3 width,), zeros; bias_k and bias_v (1, 1, width), normal as init::xavier_normal_ says; and
/// the part out_proj, a Linear whose bias starts as zeros.
class MultiheadAttention : public ModuleOf<MultiheadAttention> {
 public:
  /// Throws InvalidArgument for sizes of which one is not positive, heads that do not divide the width, a
  /// dropout outside of [0, 1], and a type that is not floating point.
  MultiheadAttention(IntArg width, IntArg heads, const MultiheadAttentionOptions& options = {},
                     std::source_location where = std::source_location::current());

  /// Returns the outputs, of the shape of the queries, and the weights: (batch, queries, keys), with heads
  /// (batch, heads, queries, keys), or an empty handle. Arrays of rank 2 have no batch; neither have the
  /// results. A query whose keys are all masked gets the bias of out_proj, where PyTorch gives NaN. Throws
  /// InvalidArgument for shapes and types that do not fit; the message names the argument.
  std::pair<NDArray, NDArray> forward(const NDArray& query, const NDArray& key, const NDArray& value,
                                      const AttendOptions& options = {});
  // Options in braces: attend(q, k, v, {.is_causal = true}).
  using ModuleOf::operator();
  std::pair<NDArray, NDArray> operator()(const Arg& query, const NDArray& key, const NDArray& value,
                                         const AttendOptions& options = {}) const {
    return ModuleOf::operator()<const NDArray&, const NDArray&, const AttendOptions&>(query, key, value,
                                                                                      options);
  }
  void reset_parameters(Generator* generator = nullptr);
  std::string extra() const override;

  int64_t width() const { return width_; }
  int64_t heads() const { return heads_; }

  Parameter in_proj_weight;                               ///< not defined() if kdim or vdim differs
  Parameter q_proj_weight, k_proj_weight, v_proj_weight;  ///< defined() only if kdim or vdim differs
  Parameter in_proj_bias;                                 ///< not defined() if `bias` is false
  Parameter bias_k, bias_v;                               ///< defined() only if `add_bias_kv` is set
  Linear out_proj;

 private:
  struct Projected {
    NDArray q, k, v;  // (batch, length, width)
  };
  /// Whether one product projects all three.
  bool projects_together(const NDArray& query, const NDArray& key, const NDArray& value) const;
  Projected project(const NDArray& query, const NDArray& key, const NDArray& value) const;

  int64_t width_, heads_, kdim_, vdim_;
  double dropout_;
  bool add_zero_attn_, batch_first_;
};

}  // namespace mx::nn
