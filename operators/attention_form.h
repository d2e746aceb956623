// Code that the operators of attention, with and without a dropout, share: checks, costs, and gradients made
// of operators. Internal.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "operators/attention.h"
#include "operators/operator.h"

namespace mx::detail {

inline double attention_scale(double given, int64_t width) {
  if (given != 0) return given;
  return width > 0 ? 1 / std::sqrt(static_cast<double>(width)) : 1;
}

/// Checks q, k, v, which are inputs `first` and following, and the mask, input `mask`, if there is one.
void check_attention(const InferContext& c, size_t first, size_t mask, double scale);
/// Checks the inputs of a backward operator: dy, q, k, v, sums, delta, and the mask, input `mask`.
void check_attention_backward(const InferContext& c, size_t mask, double scale);

int64_t attention_work(const InferContext& c);           ///< of q, k, v
int64_t attention_work_backward(const InferContext& c);  ///< of dy, q, k, v

/// The sum of dy * y over a row, less the gradient of the sums, for outputs y and sums.
NDArray attention_delta(GradientContext& g, const NDArray& dy);

/// A dropout of the weights; without one, `key` is an empty handle.
struct DroppedWeights {
  double p = 0;
  NDArray key{};
};
/// The gradients from stored scores, by operators: for gradients of gradients, and for the mask. Inputs 0 to
/// 2 are q, k and v, the outputs y and sums.
void attention_gradient_by_operators(GradientContext& g, const AttentionAttrs& attrs, size_t mask_input,
                                     const DroppedWeights& dropped, const NDArray& dy, const NDArray& delta);

extern const Operator kAttentionDropout, kAttentionDropoutBackward;

}  // namespace mx::detail
