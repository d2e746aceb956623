// Losses that compare two arrays element by element, each with the sum over all elements and with its
// derivative in one pass.
//
// Definitions are PyTorch's (torch.nn.functional). f16 and bf16 are computed in f32. What is added up is
// added as in reduce.h, pieces of 1024 elements, then in f64. Every element's bits depend on its operands and
// on the processor's instruction set alone, and sums on shape and strides as well: not on the number of
// threads.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Of x and t; p is the parameter, w the weight.
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
  double parameter = 0;  ///< above 0 where it divides
  bool each = false;     ///< every element's loss instead of their sum
  double divisor = 1;    ///< of the sum
};

/// loss: of rank 0, or of x's shape for `each`. target, and weight unless it is null, have x's shape
/// (broadcast operands have strides of 0). x and loss are of floating point, the others of any type. No
/// operand may overlap the loss. Throws InvalidArgument for other shapes and types.
void elementwise_loss(ElementwiseLoss op, const Tensor& loss, const Tensor& x, const Tensor& target,
                      const Tensor* weight, const ElementwiseLossOptions& options);

/// The gradient with respect to x, given that of the loss (of the loss's shape).
void elementwise_loss_backward(ElementwiseLoss op, const Tensor& dx, const Tensor& dloss, const Tensor& x,
                               const Tensor& target, const Tensor* weight,
                               const ElementwiseLossOptions& options);

}  // namespace mx::kernels
