#include "nn/losses.h"

namespace mx::nn {
namespace {

/// The options without the weight, which has a place of its own.
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
  return cross_entropy(logits, target, with_weight(options_, weight_));
}

NLLLoss::NLLLoss(const ClassLossOptions& options) : options_(without_weight(options)) {
  if (options.weight.defined()) weight_ = add_buffer("weight", options.weight);
}
NDArray NLLLoss::loss(const NDArray& log_probabilities, const NDArray& labels) const {
  return nll_loss(log_probabilities, labels, with_weight(options_, weight_));
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const std::string& reduction, const NDArray& pos_weight)
    : reduction_(reduction) {
  if (pos_weight.defined()) pos_weight_ = add_buffer("pos_weight", pos_weight);
}
NDArray BCEWithLogitsLoss::loss(const NDArray& x, const NDArray& target) const {
  return bce_with_logits(x, target, reduction_, pos_weight_.defined() ? pos_weight_.array() : NDArray());
}

NDArray BCELoss::loss(const NDArray& x, const NDArray& target) const {
  return bce_loss(x, target, reduction_);
}

NDArray MSELoss::loss(const NDArray& x, const NDArray& target) const {
  return mse_loss(x, target, reduction_);
}

NDArray L1Loss::loss(const NDArray& x, const NDArray& target) const { return l1_loss(x, target, reduction_); }

NDArray HuberLoss::loss(const NDArray& x, const NDArray& target) const {
  return huber_loss(x, target, delta_, reduction_);
}

NDArray SmoothL1Loss::loss(const NDArray& x, const NDArray& target) const {
  return smooth_l1_loss(x, target, beta_, reduction_);
}

NDArray KLDivLoss::loss(const NDArray& x, const NDArray& target) const {
  return kl_div(x, target, reduction_, log_target_);
}

NDArray HingeLoss::loss(const NDArray& x, const NDArray& target) const {
  return hinge_loss(x, target, margin_, reduction_);
}

NDArray HingeEmbeddingLoss::loss(const NDArray& x, const NDArray& target) const {
  return hinge_embedding_loss(x, target, margin_, reduction_);
}

NDArray TripletMarginLoss::loss(const NDArray& anchor, const NDArray& positive,
                                const NDArray& negative) const {
  return triplet_margin_loss(anchor, positive, negative, options_);
}

NDArray CosineEmbeddingLoss::loss(const NDArray& a, const NDArray& b, const NDArray& target) const {
  return cosine_embedding_loss(a, b, target, margin_, reduction_);
}

NDArray MarginRankingLoss::loss(const NDArray& a, const NDArray& b, const NDArray& target) const {
  return margin_ranking_loss(a, b, target, margin_, reduction_);
}

}  // namespace mx::nn
