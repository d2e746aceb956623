// Losses, as torch.nn.functional defines them.
//
// `reduction` is "none", "mean" or "sum". Each loss is one operator, and so is its gradient. Those that
// compare two arrays element by element want both in one shape: broadcasting (N,) against (N, 1) is a mistake
// that is hard to see. All throw InvalidArgument for shapes, types and options that do not fit; a label that
// is no class comes out of waiting for the result.
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
    v("axis", &CrossEntropyAttrs::axis, "the dimension of the classes; scores of rank 1 are one row");
    v("ignore_index", &CrossEntropyAttrs::ignore_index, "the label of places that do not count");
    v("label_smoothing", &CrossEntropyAttrs::label_smoothing, "the share that all classes get, 0 to 1");
    v("reduction", &CrossEntropyAttrs::reduction, "\"none\", \"mean\" (over the weights) or \"sum\"");
  }
};

struct NllAttrs {
  int64_t axis = 1;
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  template <class V>
  static void fields(V&& v) {
    v("axis", &NllAttrs::axis, "the dimension of the classes; scores of rank 1 are one row");
    v("ignore_index", &NllAttrs::ignore_index, "the label of places that do not count");
    v("reduction", &NllAttrs::reduction, "\"none\", \"mean\" (over the weights) or \"sum\"");
  }
};

/// cross_entropy(x, y, {.reduction = "sum", .label_smoothing = 0.1}); in PyTorch's order.
struct ClassLossOptions {
  NDArray weight{};  ///< one per class; none: ones
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  double label_smoothing = 0;  ///< not for nll_loss
  int64_t axis = 1;
};

/// From logits. The target: integer labels, of the logits' shape without the classes, or a distribution over
/// them of floating-point type and the logits' shape. operators/kernels/loss.h has the formula.
NDArray cross_entropy(const Arg& logits, const NDArray& target, const ClassLossOptions& options = {});
/// From log-probabilities and labels.
NDArray nll_loss(const Arg& log_probabilities, const NDArray& labels, const ClassLossOptions& options = {});

/// The gradients with respect to the scores, given that of the loss.
NDArray cross_entropy_backward(const Arg& dloss, const NDArray& logits, const NDArray& target,
                               const ClassLossOptions& options = {});
NDArray nll_loss_backward(const Arg& dloss, const NDArray& log_probabilities, const NDArray& labels,
                          const ClassLossOptions& options = {});

/// -t log(x) - (1 - t) log(1 - x) for probabilities x, logarithms at least -100.
NDArray bce_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");
/// The same of sigmoid(x), without overflow; positives count pos_weight times.
NDArray bce_with_logits(const Arg& x, const NDArray& target, const std::string& reduction = "mean",
                        const NDArray& pos_weight = {});
/// (x - t)^2.
NDArray mse_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");
/// |x - t|.
NDArray l1_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");
/// (x - t)^2 / 2 up to a distance of delta, delta (|x - t| - delta / 2) beyond.
NDArray huber_loss(const Arg& x, const NDArray& target, RealArg delta = 1,
                   const std::string& reduction = "mean");
/// huber_loss / beta; l1_loss for beta = 0.
NDArray smooth_l1_loss(const Arg& x, const NDArray& target, RealArg beta = 1,
                       const std::string& reduction = "mean");
/// t (log t - x) for log-probabilities x, 0 log 0 = 0; log_target: the target is log t. `reduction` may also
/// be "batchmean": the sum over the size of the first dimension.
NDArray kl_div(const Arg& x, const NDArray& target, const std::string& reduction = "mean",
               bool log_target = false);
/// max(0, margin - x t) for targets of -1 and 1.
NDArray hinge_loss(const Arg& x, const NDArray& target, RealArg margin = 1,
                   const std::string& reduction = "mean");
/// x where t is 1, max(0, margin - x) where t is -1 (torch's hinge_embedding_loss).
NDArray hinge_embedding_loss(const Arg& x, const NDArray& target, RealArg margin = 1,
                             const std::string& reduction = "mean");

}  // namespace mx
