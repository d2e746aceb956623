// The rows of elementwise losses: contiguous elements of float or double. Internal.
#pragma once

#include <cstdint>

#include "ndarray/dtype.h"
#include "operators/kernels/elementwise_loss.h"

namespace mx::kernels {

/// Operands of a row, all of the type of the computation.
struct LossRun {
  const void* x;
  const void* target;
  const void* inner;   ///< what LossInner says
  const void* weight;  ///< null: ones. Only bce_with_logits has one.
  const void* head;    ///< slopes are multiplied by these; null: by `scale`
  double parameter;
  double scale;
};

/// out[i] for n elements.
using LossRow = void (*)(void* out, const LossRun& in, int64_t n);

/// What a row finds ready, from functions that are elsewhere.
enum class LossInner : uint8_t { none, softplus_of_minus_x, sigmoid_of_x, log_of_target, exp_of_target, bce };

struct LossRows {
  LossRow row;
  LossInner inner;
};

/// computing: f32 or f64. Losses, and derivatives with respect to x times the head or the scale.
LossRows loss_values(ElementwiseLoss op, DType computing);
LossRows loss_slopes(ElementwiseLoss op, DType computing);

/// The sum of n elements, of up to 1024 in the type of the computation.
using LossSum = double (*)(const void* values, int64_t n);
LossSum loss_sum(DType computing);

}  // namespace mx::kernels
