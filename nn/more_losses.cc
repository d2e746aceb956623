#include "nn/more_losses.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "nn/detail/loss_parts.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/reduce.h"
#include "operators/scan.h"
#include "operators/select.h"

namespace mx::nn {

using detail::check_loss_reduction;
using detail::check_loss_shapes;
using detail::not_empty;
using detail::reduce_losses;

NDArray poisson_nll_loss(const Arg& x, const NDArray& target, const PoissonOptions& options) try {
  check_loss_shapes("poisson_nll_loss", x, target, "input and target");
  check_loss_reduction("poisson_nll_loss", options.reduction);
  NDArray losses = options.log_input ? sub({exp(x), x.where}, target * x.array)
                                     : sub({x.array, x.where}, target * log(x.array + options.eps));
  if (options.full) {
    const NDArray large = where(target > 1, target, 1);  // log() of the others is not used
    const NDArray stirling = target * log(large) - target + log(large * (2 * std::numbers::pi)) * 0.5;
    losses = losses + where(target > 1, stirling, 0);
  }
  return reduce_losses(losses, options.reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray gaussian_nll_loss(const Arg& x, const NDArray& target, const NDArray& variance,
                          const GaussianOptions& options) try {
  check_loss_shapes("gaussian_nll_loss", x, target, "input and target");
  check_loss_reduction("gaussian_nll_loss", options.reduction);
  MX_CHECK(options.eps > 0, InvalidArgument, "[gaussian_nll_loss] expected an eps above 0, got ",
           options.eps);
  const Shape& shape = x.array.shape();
  NDArray v = variance;
  if (v.shape() != shape && v.rank() + 1 == shape.rank()) v = v.expand_dims(-1);
  Shape one = shape;
  if (one.rank() > 0) one[one.rank() - 1] = 1;
  MX_CHECK(v.shape() == shape || v.shape() == one, InvalidArgument,
           "[gaussian_nll_loss] expected variances of the input's shape ", shape,
           ", with size 1 in its last dimension, or without it, got ", variance.shape());
  v = v + (maximum(v, options.eps) - v).detach();  // a limit without a gradient of its own
  NDArray losses = (log(v) + square(sub({x.array, x.where}, target)) / v) * 0.5;
  if (options.full) losses = losses + std::log(2 * std::numbers::pi) / 2;
  return reduce_losses(losses, options.reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray multilabel_margin_loss(const Arg& x, const NDArray& target, const std::string& reduction) try {
  check_loss_shapes("multilabel_margin_loss", x, target, "input and target");
  check_loss_reduction("multilabel_margin_loss", reduction);
  const int rank = x.array.rank();
  MX_CHECK(
      (rank == 1 || rank == 2) && is_integral(target.dtype()), InvalidArgument,
      "[multilabel_margin_loss] expected an input (n, classes) or (classes,) and integer labels, got shape ",
      x.array.shape(), " and labels of type ", target.dtype());
  const NDArray scores = rank == 2 ? x.array : x.array.expand_dims(0),
                all = rank == 2 ? target : target.expand_dims(0);
  const int64_t classes = scores.size(1);
  const NDArray valid = cumprod((all >= 0).to(i64), 1) == 1;  // up to the first negative label
  const NDArray labels = where(valid, all, 0);
  const NDArray chosen = gather({scores, x.where}, labels.to(i64), 1);
  const NDArray is_label =
      max(where(valid.expand_dims(-1), one_hot(labels.to(i64), classes, scores.dtype()), 0), 1);
  const NDArray gaps = relu(1 - (chosen.expand_dims(-1) - scores.expand_dims(1)));  // (n, label, class)
  const NDArray counted = valid.expand_dims(-1).to(scores.dtype()) * (1 - is_label).expand_dims(1);
  const NDArray losses =
      sum(gaps * counted, {1, 2}) * (1 / static_cast<double>(std::max<int64_t>(1, classes)));
  return reduce_losses(rank == 2 ? losses : losses.squeeze(0), reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray multi_margin_loss(const Arg& x, const NDArray& labels, const MultiMarginOptions& options) try {
  check_loss_reduction("multi_margin_loss", options.reduction);
  MX_CHECK(options.p == 1 || options.p == 2, InvalidArgument,
           "[multi_margin_loss] expected p of 1 or 2, got ", int64_t{options.p});
  const int rank = x.array.rank();
  const bool fits = (rank == 2 && labels.rank() == 1 && labels.size(0) == x.array.size(0)) ||
                    (rank == 1 && labels.rank() == 0);
  MX_CHECK(fits && is_integral(labels.dtype()), InvalidArgument,
           "[multi_margin_loss] expected an input (n, classes) with integer labels (n,), or (classes,) with "
           "(), got ",
           x.array.shape(), " and ", labels.dtype(), ' ', labels.shape());
  const NDArray scores = rank == 2 ? x.array : x.array.expand_dims(0);
  const NDArray own = (rank == 2 ? labels : labels.expand_dims(0)).to(i64);
  const int64_t classes = scores.size(1);
  NDArray gaps = relu(scores - gather({scores, x.where}, own.expand_dims(1), 1) + options.margin);
  if (options.p == 2) gaps = square(gaps);
  gaps = where(one_hot(own, classes, bool_), 0, gaps);
  NDArray losses = sum(gaps, 1) * (1 / static_cast<double>(std::max<int64_t>(1, classes)));
  if (options.weight.defined()) {
    MX_CHECK(options.weight.shape() == Shape{classes}, InvalidArgument,
             "[multi_margin_loss] expected one weight for each of ", classes, " classes, got shape ",
             options.weight.shape());
    losses = losses * take(options.weight, own, 0);
  }
  return reduce_losses(rank == 2 ? losses : losses.squeeze(0), options.reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray multilabel_soft_margin_loss(const Arg& x, const NDArray& target, const NDArray& weight,
                                    const std::string& reduction) try {
  check_loss_shapes("multilabel_soft_margin_loss", x, target, "input and target");
  check_loss_reduction("multilabel_soft_margin_loss", reduction);
  MX_CHECK(x.array.rank() >= 1, InvalidArgument,
           "[multilabel_soft_margin_loss] expected an input (.., classes), got a number");
  const NDArray losses = bce_with_logits(x, target, "none");
  return reduce_losses(mean(weight.defined() ? losses * weight : losses, -1), reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray soft_margin_loss(const Arg& x, const NDArray& target, const std::string& reduction) try {
  check_loss_shapes("soft_margin_loss", x, target, "input and target");
  check_loss_reduction("soft_margin_loss", reduction);
  return reduce_losses(softplus(-mul({x.array, x.where}, target)), reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

NDArray triplet_margin_with_distance_loss(const Arg& anchor, const NDArray& positive, const NDArray& negative,
                                          const TripletDistanceOptions& options) try {
  check_loss_shapes("triplet_margin_with_distance_loss", anchor, positive, "anchor and positive");
  check_loss_shapes("triplet_margin_with_distance_loss", anchor, negative, "anchor and negative");
  check_loss_reduction("triplet_margin_with_distance_loss", options.reduction);
  const auto distance = [&](const NDArray& a, const NDArray& b) {
    return options.distance ? options.distance(a, b) : pairwise_distance({a, anchor.where}, b);
  };
  NDArray apart = distance(anchor.array, negative);
  if (options.swap) apart = minimum(apart, distance(positive, negative));
  return reduce_losses(relu(distance(anchor.array, positive) - apart + options.margin), options.reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(anchor.where);
}

// Modules.

NDArray PoissonNLLLoss::loss(const NDArray& x, const NDArray& target) const {
  return poisson_nll_loss(not_empty(*this, x, options_.reduction), target, options_);
}

NDArray GaussianNLLLoss::loss(const NDArray& x, const NDArray& target, const NDArray& variance) const {
  return gaussian_nll_loss(not_empty(*this, x, options_.reduction), target, variance, options_);
}

MultiMarginLoss::MultiMarginLoss(const MultiMarginOptions& options) : options_(options) {
  options_.weight = NDArray();
  if (options.weight.defined()) weight_ = add_buffer("weight", options.weight);
}
NDArray MultiMarginLoss::loss(const NDArray& x, const NDArray& labels) const {
  MultiMarginOptions options = options_;
  if (weight_.defined()) options.weight = weight_;
  return multi_margin_loss(not_empty(*this, x, options.reduction), labels, options);
}

MultiLabelSoftMarginLoss::MultiLabelSoftMarginLoss(const NDArray& weight, const std::string& reduction)
    : reduction_(reduction) {
  if (weight.defined()) weight_ = add_buffer("weight", weight);
}
NDArray MultiLabelSoftMarginLoss::loss(const NDArray& x, const NDArray& target) const {
  return multilabel_soft_margin_loss(not_empty(*this, x, reduction_), target,
                                     weight_.defined() ? weight_.array() : NDArray(), reduction_);
}

NDArray TripletMarginWithDistanceLoss::loss(const NDArray& anchor, const NDArray& positive,
                                            const NDArray& negative) const {
  return triplet_margin_with_distance_loss(not_empty(*this, anchor, options_.reduction), positive, negative,
                                           options_);
}

NDArray CTCLoss::operator()(const NDArray& log_probs, const NDArray& targets, const NDArray& input_lengths,
                            const NDArray& target_lengths, std::source_location where) const {
  const auto body = [this](std::span<const NDArray> in) {
    return std::vector<NDArray>{
        ctc_loss(not_empty(*this, in[0], options_.reduction), in[1], in[2], in[3], options_)};
  };
  return run({log_probs, targets, input_lengths, target_lengths}, body, where)[0];
}

NDArray PairwiseDistance::loss(const NDArray& a, const NDArray& b) const {
  const NDArray distance = pairwise_distance(detail::at_call(a), b, p_, eps_);
  return keep_dims_ ? distance.expand_dims(-1) : distance;
}

NDArray CosineSimilarity::loss(const NDArray& a, const NDArray& b) const {
  return cosine_similarity(detail::at_call(a), b, axis_, eps_);
}

}  // namespace mx::nn
