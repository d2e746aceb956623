// The gradients of the elementwise losses. Internal.
#pragma once

#include <string>

#include "operators/gradient.h"
#include "operators/kernels/elementwise_loss.h"

namespace mx::detail {

/// A loss with its attributes, in one form for all records.
struct LossCall {
  kernels::ElementwiseLoss loss;
  double parameter;
  std::string reduction;

  bool each() const { return reduction == "none"; }
  /// Returns the number by which the sum over an array of this shape is divided.
  double divisor(const Shape& x) const;
};

/// Returns d(loss)/dx, given d(loss)/d(result).
NDArray elementwise_loss_backward(const LossCall& call, const NDArray& dloss, const NDArray& x,
                                  const NDArray& target, const NDArray& weight);

/// The gradient of a loss with inputs x, target, weight?.
void gradient_elementwise_loss(GradientContext& g, const LossCall& call);
/// The gradient of elementwise_loss_backward, with inputs dloss, x, target, weight?.
void gradient_elementwise_loss_backward(GradientContext& g, const LossCall& call);

}  // namespace mx::detail
