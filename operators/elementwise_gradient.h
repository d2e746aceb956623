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

struct BinaryGradients {
  ElementwiseGradient arrays;                                 ///< of two arrays
  void (*number)(GradientContext&) = nullptr;                 ///< of an array and a number (NumberAttrs)
  GradientUses (*number_uses)(const Attrs& attrs) = nullptr;  ///< values that `number` reads
};

ElementwiseGradient unary_gradient(kernels::UnaryOp op);
BinaryGradients binary_gradient(kernels::BinaryOp op);

}  // namespace mx::detail
