// Update rules of optimisers, over whole lists of tensors in one call.
//
// Every list has one entry per parameter; the entries of one parameter have equal sizes and are contiguous.
// Parameters and state are all f32 or all f64; gradients have any floating-point type. If a model keeps f16
// or bf16 weights, `parameters` are the f32 master weights and `copies` the weights, which get the rounded
// values. Work is split into pieces of 16384 elements across the borders of tensors, and each element is
// computed by itself, so results do not depend on the number of threads.
//
// Numbers that change from step to step (learning rate, step, scale) are tensors of rank 0, f32 or f64. The
// kernel reads them when it runs, so that a captured program sees their current values. Rules are those of
// PyTorch: https://pytorch.org/docs/stable/optim.html.
//
// A rule that needs the number of the step gets one number for all parameters, or counts the steps of each.
// The counts differ if a parameter had no gradient in some steps.
#pragma once

#include <cstdint>
#include <span>

#include "ndarray/tensor.h"

namespace mx::kernels {

struct UpdateLists {
  std::span<const Tensor> parameters;
  std::span<const Tensor> gradients;
  std::span<const Tensor> copies = {};  ///< empty, or one per parameter; any floating-point type
};

/// Preprocessing of the gradient g, the same in every rule, in this order: g = g * scale, g limited to
/// [-clip, clip], g = g + weight_decay * w.
struct UpdateCommon {
  Tensor learning_rate;           ///< rank 0
  const Tensor* scale = nullptr;  ///< rank 0: 1 / loss scale, or the result of clip_scale()
  double clip = 0;                ///< 0: no limit
  double weight_decay = 0;
  const Tensor* skip = nullptr;  ///< rank 0: if it is not 0, nothing is changed
  /// Instead of a step: contiguous f64 of rank 1, the number of steps that each parameter has had. The update
  /// adds 1; the result is the number of this step.
  const Tensor* counts = nullptr;
  std::span<const int64_t> rows = {};  ///< counts[rows[i]] is parameter i's, all distinct; empty: counts[i]
};

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  bool ema = false;  ///< u = momentum * u + (1 - momentum) * g; dampening is ignored
  /// Rank 0, the number of this step, from 1. The first step sets u = g, as in PyTorch. Without step and
  /// counts no step is the first.
  const Tensor* step = nullptr;
  bool maximize = false;  ///< g = -g
};

/// Without momentum w -= lr * g. With it u = momentum * u + (1 - dampening) * g and w -= lr * u; with
/// nesterov w -= lr * (g + momentum * u); with nesterov and ema
/// w -= lr * ((1 - momentum) * g + momentum * u). `velocity` holds u and is empty without momentum. Throws
/// InvalidArgument for lists that do not fit together.
void sgd_update(const UpdateLists& lists, std::span<const Tensor> velocity, const UpdateCommon& common,
                const SgdOptions& options = {});

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool decoupled = false;        ///< AdamW: w -= lr * weight_decay * w first; the gradient gets no decay
  bool bias_correction = true;   ///< false: both corrections 1 - beta^t are replaced by 1
  const Tensor* step = nullptr;  ///< rank 0, t; required without counts
  bool maximize = false;
};

/// m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g * g,
/// w -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps), where t is the number of the step, from 1.
/// With `largest` (AMSGrad), largest = max(largest, v) takes the place of v in the last line.
void adam_update(const UpdateLists& lists, std::span<const Tensor> m, std::span<const Tensor> v,
                 const UpdateCommon& common, const AdamOptions& options = {},
                 std::span<const Tensor> largest = {});

/// norm = the 2-norm of all elements of all tensors together, accumulated in f64. `norm` has rank 0 and a
/// floating-point type. It is NaN or infinite if one of the elements is.
void total_norm(const Tensor& norm, std::span<const Tensor> tensors);

/// scale = min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; NaN for NaN. Both have rank
/// 0.
void clip_scale(const Tensor& scale, const Tensor& norm, double max_norm);

}  // namespace mx::kernels
