// The row functions of elementwise losses, for contiguous elements of float or double. Internal.
#pragma once

#include <cstdint>

#include "ndarray/dtype.h"
#include "operators/kernels/elementwise_loss.h"

namespace mx::kernels {

/// Operands of a row, all of the computation's type.
struct LossRun {
  const void* x;
  const void* target;
  const void* inner;   ///< precomputed values, as LossInner says
  const void* weight;  ///< null: all 1. Only bce_with_logits has one.
  const void* head;  ///< gradient of each element's loss, a factor of the slopes; null: the factor is `scale`
  double parameter;
  double scale;
};

/// Computes out[i] for n elements.
using LossRow = void (*)(void* out, const LossRun& in, int64_t n);

/// A function of the operands that the caller computes for a row beforehand, with kernels from other files.
enum class LossInner : uint8_t { none, softplus_of_minus_x, sigmoid_of_x, log_of_target, exp_of_target, bce };

struct LossRows {
  LossRow row;
  LossInner inner;
};

/// Return the functions for the losses, and for the derivatives with respect to x times head or scale.
/// computing is f32 or f64.
LossRows loss_values(ElementwiseLoss op, DType computing);
LossRows loss_slopes(ElementwiseLoss op, DType computing);

/// Sums n elements; up to 1024 at a time are added in the type of the computation.
using LossSum = double (*)(const void* values, int64_t n);
LossSum loss_sum(DType computing);

}  // namespace mx::kernels
