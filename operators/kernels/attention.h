// Scaled dot-product attention, block by block, so that the matrix of scores is never stored as a whole.
//
//   y = softmax(scale * q k' + mask) v       for every batch and head
//
// A block of rows of q meets one block of keys after the other. Maximum and sum of each row's exponentials
// are carried along, and what has been added up so far is scaled when the maximum grows (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018; Rabe and Staats, "Self-attention does not
// need O(n^2) memory", 2021). The backward pass computes the weights again, from the logarithms of the sums.
//
// Types: all of one type, f32, f64, f16 or bf16. f16 and bf16 are computed in f32 and rounded once.
//
// Repeatable: blocks depend on the shapes only, and sums are formed in the order of the blocks, whatever the
// number of threads.
//
// Thread-safety: any thread may call.
#pragma once

#include <cstdint>

#include "ndarray/launch.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

struct AttentionParams {
  double scale = 1;
  bool causal = false;
  /// With `causal`, row i of q attends to the keys up to i + causal_offset.
  int64_t causal_offset = 0;
  /// The probability with which a weight becomes 0; the others are divided by 1 - dropout. The weight of
  /// query i and key j of head h in batch b is element ((b * H + h) * L + i) * S + j of random_bernoulli()
  /// with this seed and offset, so the backward pass makes the same choices again.
  double dropout = 0;
  uint64_t seed = 0, offset = 0;
};

/// q (B, H, L, E), k (B, G, S, E), v (B, G, S, F), y (B, H, L, F) and sums (B, H, L), where G divides H: the
/// heads of q share those of k and v in groups. `mask`, which may be null, broadcasts to (B, H, L, S): bool,
/// true where a row attends to a key, or floating point, which is added to the scores. `sums` has the type in
/// which f16 is computed, and receives the logarithm of the sum of each row's exponentials. A row without
/// keys gives zeros, and -infinity in `sums`.
void attention(const KernelArgs& args, const Tensor& y, const Tensor& sums, const Tensor& q, const Tensor& k,
               const Tensor& v, const Tensor* mask, const AttentionParams& options);

/// The term of each row in the gradient of its scores: the sum of dy * y over the row, less the gradient of
/// `sums`. Exactly one is set: `delta` (B, H, L), or y, from which the kernel computes it.
struct RowDelta {
  const Tensor* delta = nullptr;
  const Tensor* y = nullptr;
};

/// The gradients dq, dk and dv, from dy and what attention() has returned. `sums` and `delta` may have the
/// type of q, too.
void attention_backward(const KernelArgs& args, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                        const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& sums, const RowDelta& row_delta, const Tensor* mask,
                        const AttentionParams& options);

}  // namespace mx::kernels
