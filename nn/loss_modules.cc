#include "engine/base/check.h"
#include "nn/detail/call_site.h"
#include "nn/losses.h"

namespace mx::nn {

using detail::not_empty;

Arg detail::not_empty(const Module& module, const NDArray& x, const std::string& reduction) {
  const bool takes_mean = reduction == "mean" || reduction == "batchmean";
  MX_CHECK(!takes_mean || x.numel() > 0, InvalidArgument, "[", module.type_name(),
           "] expected a batch with at least one element, of which to take the mean, got shape ", x.shape());
  return at_call(x);
}

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
  return cross_entropy(not_empty(*this, logits, options_.reduction), target, with_weight(options_, weight_));
}

NLLLoss::NLLLoss(const ClassLossOptions& options) : options_(without_weight(options)) {
  if (options.weight.defined()) weight_ = add_buffer("weight", options.weight);
}
NDArray NLLLoss::loss(const NDArray& log_probabilities, const NDArray& labels) const {
  return nll_loss(not_empty(*this, log_probabilities, options_.reduction), labels,
                  with_weight(options_, weight_));
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const std::string& reduction, const NDArray& pos_weight)
    : reduction_(reduction) {
  if (pos_weight.defined()) pos_weight_ = add_buffer("pos_weight", pos_weight);
}
NDArray BCEWithLogitsLoss::loss(const NDArray& x, const NDArray& target) const {
  return bce_with_logits(not_empty(*this, x, reduction_), target, reduction_,
                         pos_weight_.defined() ? pos_weight_.array() : NDArray());
}

NDArray KLDivLoss::loss(const NDArray& x, const NDArray& target) const {
  return kl_div(not_empty(*this, x, reduction_), target, reduction_, log_target_);
}

NDArray TripletMarginLoss::loss(const NDArray& anchor, const NDArray& positive,
                                const NDArray& negative) const {
  return triplet_margin_loss(not_empty(*this, anchor, options_.reduction), positive, negative, options_);
}

}  // namespace mx::nn
