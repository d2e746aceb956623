// Losses that compare two arrays element by element. One pass computes the losses and their sum; a second
// function computes the derivative.
//
// Definitions are those of PyTorch (torch.nn.functional). f16 and bf16 are computed in f32. Sums are added as
// in reduce.h: in pieces of 1024 elements, which are then added in f64. The bits of an element depend only on
// its operands and on the processor's instruction set, those of a sum also on shape and strides. Neither
// depends on the number of threads.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// x is the input, t the target, p the parameter, w the weight.
enum class ElementwiseLoss : uint8_t {
  mse,              ///< (x - t)^2
  l1,               ///< |x - t|
  huber,            ///< (x - t)^2 / 2 up to |x - t| = p, p (|x - t| - p / 2) beyond
  smooth_l1,        ///< huber / p
  bce,              ///< -t log(x) - (1 - t) log(1 - x), logarithms at least -100
  bce_with_logits,  ///< (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x))
  kl_div,           ///< t (log(t) - x), 0 for t = 0
  kl_div_log,       ///< exp(t) (t - x), 0 for t = -infinity
  hinge,            ///< max(0, p - x t)
  hinge_embedding,  ///< x for t = 1, max(0, p - x) for t = -1, else 0
};

struct ElementwiseLossOptions {
  double parameter = 0;  ///< p; must be above 0 for a loss that divides by it
  bool each = false;     ///< return every element's loss instead of their sum
  double divisor = 1;    ///< the sum is divided by it
};

/// loss has rank 0, or x's shape for `each`. target, and weight unless it is null, have x's shape (broadcast
/// operands have strides of 0). x and loss have floating-point types, target and weight any type. No operand
/// may overlap the loss. Throws InvalidArgument for other shapes and types.
void elementwise_loss(ElementwiseLoss op, const Tensor& loss, const Tensor& x, const Tensor& target,
                      const Tensor* weight, const ElementwiseLossOptions& options);

/// Computes the gradient with respect to x from the gradient of the loss, which has the loss's shape.
void elementwise_loss_backward(ElementwiseLoss op, const Tensor& dx, const Tensor& dloss, const Tensor& x,
                               const Tensor& target, const Tensor* weight,
                               const ElementwiseLossOptions& options);

}  // namespace mx::kernels
