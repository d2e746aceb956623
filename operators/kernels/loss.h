// Losses of classification: cross entropy from logits, and the negative log-likelihood of log-probabilities.
//
// Definitions are those of PyTorch (torch.nn.functional.cross_entropy, nll_loss). Classes are along `axis`,
// and each index r of the other axes is a row. With its label y, the weights w (all 1 if there are none), the
// smoothing e and C classes:
//   loss[r] = (1 - e) w[y] (L - x[y]) + e / C sum_c w[c] (L - x[c]),  L = log(sum_c exp(x[c]))
// and with a distribution t as target
//   loss[r] = sum_c w[c] ((1 - e) t[c] + e / C) (L - x[c]).
// Rows with the label ignore_index are ignored. mean divides by the sum of w[y] over the rows that are not
// ignored, or by the number of rows if the target is a distribution; over no rows it is NaN.
//
// f16 and bf16 are computed in f32. The losses of rows are added as in reduce.h, in f64. The same input gives
// the same bits at any number of threads. No operand may overlap a result.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

enum class LossReduction { none, mean, sum };

struct CrossEntropyOptions {
  int64_t axis = 1;             ///< of the classes; ignored for logits of rank 1, which are one row
  int64_t ignore_index = -100;  ///< only for labels
  double label_smoothing = 0;   ///< 0 .. 1
  LossReduction reduction = LossReduction::mean;
};

/// loss has rank 0, or the logits' shape without `axis` for LossReduction::none, and a floating-point type.
/// target is integer labels of the logits' shape without `axis`, or a floating-point distribution of the
/// logits' shape. weight is null, or contiguous with one dimension and one number per class. Throws
/// InvalidArgument for wrong shapes and types, a smoothing outside 0 .. 1, and a label that is neither a
/// class nor ignore_index; the message names the label, its position and the number of classes.
void cross_entropy(const Tensor& loss, const Tensor& logits, const Tensor& target,
                   const Tensor* weight = nullptr, const CrossEntropyOptions& options = {});

/// Computes the gradient with respect to the logits from the gradient of the loss, which has the loss's
/// shape. Recomputes the intermediate values from the logits.
void cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& target, const Tensor* weight = nullptr,
                            const CrossEntropyOptions& options = {});

/// The same with L = 0, because `x` are log-probabilities. Labels only, no smoothing.
void nll(const Tensor& loss, const Tensor& x, const Tensor& target, const Tensor* weight = nullptr,
         const CrossEntropyOptions& options = {});
void nll_backward(const Tensor& dx, const Tensor& dloss, const Tensor& x, const Tensor& target,
                  const Tensor* weight = nullptr, const CrossEntropyOptions& options = {});

}  // namespace mx::kernels
