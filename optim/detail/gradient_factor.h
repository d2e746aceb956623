// The factor by which a step multiplies all gradients: it undoes the loss scale and clips by the global norm.
// Internal.
#pragma once

#include <source_location>
#include <vector>

#include "optim/loss_scale.h"

namespace mx::optim::detail {

/// Arrays of rank 0; those that are not needed are empty handles.
struct GradientFactor {
  NDArray scale;  ///< the factor; an empty handle means 1
  NDArray skip;   ///< not 0 if the gradients are not finite and the step must be skipped
  NDArray norm;   ///< the global norm of the gradients, without the loss scale
};

/// Computes the factor for these gradients. A `max_norm` of 0 means no limit. `loss_scale` may be null;
/// otherwise an overflow is recorded in its state. `unscaled`: the gradients are divided by the scale
/// already.
GradientFactor gradient_factor(const std::vector<NDArray>& gradients, double max_norm,
                               const LossScale* loss_scale, bool unscaled, std::source_location where);

}  // namespace mx::optim::detail
