// Code that the operators of attention share, with and without a dropout, packed or not: checks, costs, and
// gradients made of operators. Internal.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ndarray/tensor.h"
#include "operators/attention.h"
#include "operators/operator.h"

namespace mx::detail {

inline double attention_scale(double given, int64_t width) {
  if (given != 0) return given;
  return width > 0 ? 1 / std::sqrt(static_cast<double>(width)) : 1;
}

/// Checks q, k, v, which are inputs `first` and following, and the mask, input `mask`, if there is one.
void check_attention(const InferContext& c, size_t first, size_t mask, double scale);
/// Checks the scale and the mask, input `mask`, if there is one. `scores`: the shape of the scores.
void check_attention_options(const InferContext& c, size_t mask, double scale, DType type,
                             const Shape& scores);
/// Checks the inputs of a backward operator: dy, q, k, v, sums, delta, and the mask, input `mask`.
void check_attention_backward(const InferContext& c, size_t mask, double scale);

int64_t attention_work(const InferContext& c);           ///< of q, k, v
int64_t attention_work_backward(const InferContext& c);  ///< of dy, q, k, v

/// (batch, length, width) to (batch, heads, length, width / heads); a view.
NDArray in_heads(const NDArray& x, int64_t heads);
/// The reverse: (batch, length, width), a copy.
NDArray joined_heads(const NDArray& x);
/// The mask of a causal call, true where a query attends to a key: (queries, keys).
NDArray causal_mask(int64_t queries, int64_t keys, int64_t offset, Context context);

/// The sum of dy * y over a row, less `dsums`, the gradient of the sums, which may be an empty handle.
NDArray attention_delta(const NDArray& dy, const NDArray& y, const NDArray& dsums, DType type);
/// The same for outputs y and sums.
NDArray attention_delta(GradientContext& g, const NDArray& dy);

/// A dropout of the weights; without one, `key` is an empty handle.
struct DroppedWeights {
  double p = 0;
  NDArray key{};
};
/// The inputs of an attention, and the logarithms of the sums of its exponentials. `mask` may be an empty
/// handle.
struct AttentionArrays {
  NDArray q, k, v, mask, sums;
};
struct AttentionGradients {
  NDArray q, k, v, mask;
};
struct AttentionWanted {
  bool q, k, v, mask;
};
/// The gradients from stored scores, by operators: for gradients of gradients, and for the mask. Those that
/// are not wanted are empty handles.
AttentionGradients attention_gradients_by_operators(const AttentionArrays& of, const AttentionAttrs& attrs,
                                                    const DroppedWeights& dropped, const NDArray& dy,
                                                    const NDArray& delta, const AttentionWanted& wanted);
/// The same for an operator whose inputs 0 to 2 are q, k and v, and whose outputs are y and sums.
void attention_gradient_by_operators(GradientContext& g, const AttentionAttrs& attrs, size_t mask_input,
                                     const DroppedWeights& dropped, const NDArray& dy, const NDArray& delta);

/// The sizes of a packed array and its parts. Precondition: heads and groups are positive, groups divides
/// heads, and the last dimension is a multiple of heads + 2 * groups.
struct PackedSizes {
  PackedSizes(const AttentionPackedAttrs& a, const Shape& packed)
      : heads(a.heads),
        groups(a.key_heads()),
        batch_axis(a.batch_first ? 0 : 1),
        width(packed[2] / (heads + 2 * groups)) {}
  int64_t heads, groups;
  int batch_axis;
  int64_t width;  ///< of a head

  /// Returns `count` heads from head `first` on of a packed array, as (batch, head, length, width). Queries
  /// begin with head 0, keys with head `heads`, values with head `heads + groups`.
  Tensor part(const Tensor& packed, int64_t first, int64_t count) const {
    const int b = batch_axis, steps = 1 - b;
    const int64_t step = packed.strides[2];
    return {element_at(packed.data, packed.dtype, first * width * step),
            packed.dtype,
            {packed.shape[b], count, packed.shape[steps], width},
            {packed.strides[b], width * step, packed.strides[steps], step}};
  }
  Tensor queries(const Tensor& packed) const { return part(packed, 0, heads); }
  Tensor keys(const Tensor& packed) const { return part(packed, heads, groups); }
  Tensor values(const Tensor& packed) const { return part(packed, heads + groups, groups); }
};

extern const Operator kAttentionDropout, kAttentionDropoutBackward, kAttentionPacked,
    kAttentionPackedBackward;

}  // namespace mx::detail
