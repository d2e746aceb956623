// The gradients of the elementwise losses. Internal.
#pragma once

#include <string>

#include "operators/gradient.h"
#include "operators/kernels/elementwise_loss.h"

namespace mx::detail {

/// A loss with its attributes, whichever record they came from.
struct LossCall {
  kernels::ElementwiseLoss loss;
  double parameter;
  std::string reduction;

  bool each() const { return reduction == "none"; }
  /// Of the sum over an array of this shape.
  double divisor(const Shape& x) const;
};

/// d(loss)/dx, given d(loss)/d(result).
NDArray elementwise_loss_backward(const LossCall& call, const NDArray& dloss, const NDArray& x,
                                  const NDArray& target, const NDArray& weight);

/// Of a loss: inputs x, target, weight?.
void gradient_elementwise_loss(GradientContext& g, const LossCall& call);
/// Of the gradient above: inputs dloss, x, target, weight?.
void gradient_elementwise_loss_backward(GradientContext& g, const LossCall& call);

}  // namespace mx::detail
