// The gradients of the classification losses and of their backward operators. Internal.
#pragma once

#include "operators/gradient.h"

namespace mx::detail {

void gradient_cross_entropy(GradientContext& g);
void gradient_cross_entropy_backward(GradientContext& g);
void gradient_nll_loss(GradientContext& g);
void gradient_nll_loss_backward(GradientContext& g);

}  // namespace mx::detail
