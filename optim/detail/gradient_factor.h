// What a step multiplies all gradients with: the loss scale taken back, and clipping by the global norm.
// Internal.
#pragma once

#include <source_location>
#include <vector>

#include "optim/loss_scale.h"

namespace mx::optim::detail {

/// Arrays of rank 0; empty handles where nothing asks for them.
struct GradientFactor {
  NDArray scale;  ///< 1: no array
  NDArray skip;   ///< not 0: the gradients are no use
  NDArray norm;   ///< the global norm, without the loss scale
};

/// `max_norm` 0: no limit. `loss_scale` may be null; it is told of an overflow.
GradientFactor gradient_factor(const std::vector<NDArray>& gradients, double max_norm,
                               const LossScale* loss_scale, std::source_location where);

}  // namespace mx::optim::detail
