// The gradients of products, for their records. Internal.
#pragma once

#include "operators/gradient.h"

namespace mx::detail {

void gradient_matmul(GradientContext& g);  ///< of matmul and dot
void gradient_linear(GradientContext& g);
void gradient_addmm(GradientContext& g);

}  // namespace mx::detail
