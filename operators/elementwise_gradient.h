// The gradients of the elementwise operators of one and of two operands, for their records. Internal.
#pragma once

#include "operators/gradient.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"

namespace mx::detail {

struct ElementwiseGradient {
  void (*gradient)(GradientContext&) = nullptr;  ///< null: not differentiable
  GradientUses uses{};
};

ElementwiseGradient unary_gradient(kernels::UnaryOp op);
ElementwiseGradient binary_gradient(kernels::BinaryOp op);

}  // namespace mx::detail
