// The gradients of reductions, for their records. Internal.
#pragma once

#include "operators/gradient.h"
#include "operators/kernels/reduce.h"

namespace mx::detail {

struct ReduceGradient {
  void (*gradient)(GradientContext&) = nullptr;  ///< null: not differentiable
  GradientUses uses{};
};

/// The gradient of an operator with ReduceAttrs.
ReduceGradient reduce_gradient(kernels::ReduceOp op);
/// Returns a result of an operator with ReduceAttrs, with size 1 for the reduced dimensions.
NDArray with_reduced_dims(const GradientContext& g, const NDArray& result);
void gradient_var(GradientContext& g);
void gradient_stddev(GradientContext& g);
void gradient_norm(GradientContext& g);

}  // namespace mx::detail
