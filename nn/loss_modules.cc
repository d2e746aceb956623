#include "engine/base/check.h"
#include "nn/detail/loss_parts.h"
#include "nn/losses.h"

namespace mx::nn {

using detail::not_empty;

namespace {

/// Returns the options without the weight: the module keeps that as a buffer.
ClassLossOptions without_weight(ClassLossOptions options) {
  options.weight = NDArray();
  return options;
}

ClassLossOptions with_weight(ClassLossOptions options, const Parameter& weight) {
  if (weight.defined()) options.weight = weight;
  return options;
}

}  // namespace

CrossEntropyLoss::CrossEntropyLoss(const ClassLossOptions& options) : options_(without_weight(options)) {
  if (options.weight.defined()) weight_ = add_buffer("weight", options.weight);
}
NDArray CrossEntropyLoss::loss(const NDArray& logits, const NDArray& target) const {
  return cross_entropy(not_empty("CrossEntropyLoss", logits, options_.reduction), target,
                       with_weight(options_, weight_));
}

NLLLoss::NLLLoss(const ClassLossOptions& options) : options_(without_weight(options)) {
  if (options.weight.defined()) weight_ = add_buffer("weight", options.weight);
}
NDArray NLLLoss::loss(const NDArray& log_probabilities, const NDArray& labels) const {
  return nll_loss(not_empty("NLLLoss", log_probabilities, options_.reduction), labels,
                  with_weight(options_, weight_));
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const std::string& reduction, const NDArray& pos_weight)
    : reduction_(reduction) {
  if (pos_weight.defined()) pos_weight_ = add_buffer("pos_weight", pos_weight);
}
NDArray BCEWithLogitsLoss::loss(const NDArray& x, const NDArray& target) const {
  return bce_with_logits(not_empty("BCEWithLogitsLoss", x, reduction_), target, reduction_,
                         pos_weight_.defined() ? pos_weight_.array() : NDArray());
}

NDArray BCELoss::loss(const NDArray& x, const NDArray& target) const {
  return bce_loss(not_empty("BCELoss", x, reduction_), target, reduction_);
}

NDArray MSELoss::loss(const NDArray& x, const NDArray& target) const {
  return mse_loss(not_empty("MSELoss", x, reduction_), target, reduction_);
}

NDArray L1Loss::loss(const NDArray& x, const NDArray& target) const {
  return l1_loss(not_empty("L1Loss", x, reduction_), target, reduction_);
}

NDArray HuberLoss::loss(const NDArray& x, const NDArray& target) const {
  return huber_loss(not_empty("HuberLoss", x, reduction_), target, delta_, reduction_);
}

NDArray SmoothL1Loss::loss(const NDArray& x, const NDArray& target) const {
  return smooth_l1_loss(not_empty("SmoothL1Loss", x, reduction_), target, beta_, reduction_);
}

NDArray KLDivLoss::loss(const NDArray& x, const NDArray& target) const {
  return kl_div(not_empty("KLDivLoss", x, reduction_), target, reduction_, log_target_);
}

NDArray HingeLoss::loss(const NDArray& x, const NDArray& target) const {
  return hinge_loss(not_empty("HingeLoss", x, reduction_), target, margin_, reduction_);
}

NDArray HingeEmbeddingLoss::loss(const NDArray& x, const NDArray& target) const {
  return hinge_embedding_loss(not_empty("HingeEmbeddingLoss", x, reduction_), target, margin_, reduction_);
}

NDArray TripletMarginLoss::loss(const NDArray& anchor, const NDArray& positive,
                                const NDArray& negative) const {
  return triplet_margin_loss(not_empty("TripletMarginLoss", anchor, options_.reduction), positive, negative,
                             options_);
}

NDArray CosineEmbeddingLoss::loss(const NDArray& a, const NDArray& b, const NDArray& target) const {
  return cosine_embedding_loss(not_empty("CosineEmbeddingLoss", a, reduction_), b, target, margin_,
                               reduction_);
}

NDArray MarginRankingLoss::loss(const NDArray& a, const NDArray& b, const NDArray& target) const {
  return margin_ranking_loss(not_empty("MarginRankingLoss", a, reduction_), b, target, margin_, reduction_);
}

}  // namespace mx::nn
