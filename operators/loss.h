// Losses, as torch.nn.functional defines them.
//
// `reduction` is "none", "mean" or "sum". Each loss is one operator, and so is its gradient. Losses that
// compare two arrays element by element require equal shapes, because broadcasting (N,) against (N, 1) is a
// mistake that is hard to see. All throw InvalidArgument for shapes, types and options that do not fit. A
// label that is not a class is found when the operation runs, so waiting for the result throws.
#pragma once

#include <cstdint>
#include <string>

#include "operators/operator.h"

namespace mx {

struct CrossEntropyAttrs {
  int64_t axis = 1;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("axis", &CrossEntropyAttrs::axis,
      "the dimension of the classes; scores of rank 1 are those of one sample");
    v("ignore_index", &CrossEntropyAttrs::ignore_index, "the label that excludes its position from the loss");
    v("label_smoothing", &CrossEntropyAttrs::label_smoothing,
      "the share of the probability spread evenly over all classes, 0 to 1");
    v("reduction", &CrossEntropyAttrs::reduction, "\"none\", \"mean\" (weighted by class) or \"sum\"");
  }
};

struct NllAttrs {
  int64_t axis = 1;
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("axis", &NllAttrs::axis, "the dimension of the classes; scores of rank 1 are those of one sample");
    v("ignore_index", &NllAttrs::ignore_index, "the label that excludes its position from the loss");
    v("reduction", &NllAttrs::reduction, "\"none\", \"mean\" (weighted by class) or \"sum\"");
  }
};

/// Example: cross_entropy(x, y, {.reduction = "sum", .label_smoothing = 0.1}). The order is PyTorch's.
struct ClassLossOptions {
  NDArray weight{};  ///< one per class; an empty handle: all 1
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  double label_smoothing = 0;  ///< not for nll_loss
  int64_t axis = 1;
};

/// Returns the cross entropy of logits. The target is either integer labels, of the logits' shape without the
/// class dimension, or a distribution over the classes, of floating-point type and of the logits' shape.
/// operators/kernels/loss.h has the formula.
NDArray cross_entropy(const Arg& logits, const NDArray& target, const ClassLossOptions& options = {});
/// Returns the negative log-likelihood of labels, from log-probabilities.
NDArray nll_loss(const Arg& log_probabilities, const NDArray& labels, const ClassLossOptions& options = {});

/// Return the gradient with respect to the scores (the first argument of the loss); `dloss` is the gradient
/// of the loss.
NDArray cross_entropy_backward(const Arg& dloss, const NDArray& logits, const NDArray& target,
                               const ClassLossOptions& options = {});
NDArray nll_loss_backward(const Arg& dloss, const NDArray& log_probabilities, const NDArray& labels,
                          const ClassLossOptions& options = {});

/// -t log(x) - (1 - t) log(1 - x) for probabilities x; logarithms are at least -100.
NDArray bce_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");
/// bce_loss of sigmoid(x), computed without overflow. The term of t is multiplied by pos_weight.
NDArray bce_with_logits(const Arg& x, const NDArray& target, const std::string& reduction = "mean",
                        const NDArray& pos_weight = {});
/// (x - t)^2.
NDArray mse_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");
/// |x - t|.
NDArray l1_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");
/// (x - t)^2 / 2 if |x - t| is at most delta, else delta (|x - t| - delta / 2).
NDArray huber_loss(const Arg& x, const NDArray& target, RealArg delta = 1,
                   const std::string& reduction = "mean");
/// huber_loss / beta; l1_loss for beta = 0.
NDArray smooth_l1_loss(const Arg& x, const NDArray& target, RealArg beta = 1,
                       const std::string& reduction = "mean");
/// t (log t - x) for log-probabilities x, with 0 log 0 = 0. If log_target is set, the target is log t.
/// `reduction` may also be "batchmean": the sum divided by the size of the first dimension.
NDArray kl_div(const Arg& x, const NDArray& target, const std::string& reduction = "mean",
               bool log_target = false);
/// max(0, margin - x t) for targets of -1 and 1.
NDArray hinge_loss(const Arg& x, const NDArray& target, RealArg margin = 1,
                   const std::string& reduction = "mean");
/// x where t is 1, max(0, margin - x) where t is -1; torch's hinge_embedding_loss.
NDArray hinge_embedding_loss(const Arg& x, const NDArray& target, RealArg margin = 1,
                             const std::string& reduction = "mean");

}  // namespace mx
