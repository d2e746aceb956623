// The gradients of convolutions, for their records. Internal.
#pragma once

#include "operators/gradient.h"

namespace mx::detail {

void gradient_convolution(GradientContext& g);
void gradient_convolution_transpose(GradientContext& g);
void gradient_convolution_weights(GradientContext& g);

}  // namespace mx::detail
