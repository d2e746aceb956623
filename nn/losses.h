// Losses as torch.nn defines them: a function and a module for each.
//
//   NDArray l = nn::cross_entropy(logits, labels, {.label_smoothing = 0.1});
//   nn::CrossEntropyLoss loss({.label_smoothing = 0.1});   NDArray same = loss(logits, labels);
//
// `reduction` is "none", "mean" or "sum". Shapes, types and options that do not fit throw InvalidArgument; a
// module throws when it is called. A function that accepts an empty batch returns NaN for its mean, as
// PyTorch does. A module throws InvalidArgument instead: in a training loop the NaN would reach every weight.
//
// Thread-safety: functions may be called by several threads at once; modules as Module (nn/module.h).
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"
#include "operators/loss.h"

namespace mx::nn {

// The losses of operators/loss.h.
using mx::bce_loss;
using mx::bce_with_logits;
using mx::cross_entropy;
using mx::hinge_embedding_loss;
using mx::hinge_loss;
using mx::huber_loss;
using mx::kl_div;
using mx::l1_loss;
using mx::mse_loss;
using mx::nll_loss;
using mx::smooth_l1_loss;

/// Returns the p-norm of a - b + eps along the last dimension: (..) for two arrays (.., n).
NDArray pairwise_distance(const Arg& a, const NDArray& b, double p = 2, double eps = 1e-6);
/// a . b / (max(|a|, eps) max(|b|, eps)) along `axis`.
NDArray cosine_similarity(const Arg& a, const NDArray& b, IntArg axis = 1, double eps = 1e-8);

struct TripletOptions {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;  ///< d(positive, negative) replaces d(anchor, negative) where it is smaller
  std::string reduction = "mean";
};
/// max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is pairwise_distance().
NDArray triplet_margin_loss(const Arg& anchor, const NDArray& positive, const NDArray& negative,
                            const TripletOptions& options = {});
/// 1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin) where it is -1. a and b are (n, features)
/// or (features,), the target is (n,) or (). The cosine is a . b / sqrt((a . a + e) (b . b + e)), e = 1e-12.
NDArray cosine_embedding_loss(const Arg& a, const NDArray& b, const NDArray& target, double margin = 0,
                              const std::string& reduction = "mean");
/// max(0, margin - target (a - b)). The target is 1 if a should be larger, and -1 if b should be.
NDArray margin_ranking_loss(const Arg& a, const NDArray& b, const NDArray& target, double margin = 0,
                            const std::string& reduction = "mean");

// Modules. A call takes the same arrays as the function, and hooks receive these arrays.

/// A loss of two arrays. Self has `NDArray loss(x, target)`.
template <class Self>
class LossModule : public ModuleOf<Self> {
 public:
  NDArray operator()(const NDArray& x, const NDArray& target,
                     std::source_location where = std::source_location::current()) const {
    const auto body = [this](std::span<const NDArray> in) {
      return std::vector<NDArray>{static_cast<const Self*>(this)->loss(in[0], in[1])};
    };
    return this->run({x, target}, body, where)[0];
  }
};
/// A loss of three arrays.
template <class Self>
class TripleLossModule : public ModuleOf<Self> {
 public:
  NDArray operator()(const NDArray& a, const NDArray& b, const NDArray& c,
                     std::source_location where = std::source_location::current()) const {
    const auto body = [this](std::span<const NDArray> in) {
      return std::vector<NDArray>{static_cast<const Self*>(this)->loss(in[0], in[1], in[2])};
    };
    return this->run({a, b, c}, body, where)[0];
  }
};

namespace detail {
/// Returns x, as the argument of a loss that is called on behalf of the module's caller. Throws
/// InvalidArgument if x is empty and the reduction is a mean: the mean would be NaN, and an optimiser would
/// write NaN into every weight.
Arg not_empty(const Module& module, const NDArray& x, const std::string& reduction);
}  // namespace detail

/// A loss of two arrays with a reduction only: kLoss(x, target, reduction).
template <class Self, auto kLoss>
class ReducedLoss : public LossModule<Self> {
 public:
  explicit ReducedLoss(const std::string& reduction = "mean") : reduction_(reduction) {}
  NDArray loss(const NDArray& x, const NDArray& target) const {
    return kLoss(detail::not_empty(*this, x, reduction_), target, reduction_);
  }

 private:
  std::string reduction_;
};
/// A loss with a number and a reduction: kLoss(x, target, number, reduction).
template <class Self, auto kLoss>
class NumberLoss : public LossModule<Self> {
 public:
  NDArray loss(const NDArray& x, const NDArray& target) const {
    return kLoss(detail::not_empty(*this, x, reduction_), target, number_, reduction_);
  }

 protected:
  NumberLoss(double number, const std::string& reduction) : number_(number), reduction_(reduction) {}

 private:
  double number_;
  std::string reduction_;
};
/// The same for three arrays: kLoss(a, b, target, number, reduction).
template <class Self, auto kLoss>
class TripleNumberLoss : public TripleLossModule<Self> {
 public:
  NDArray loss(const NDArray& a, const NDArray& b, const NDArray& target) const {
    return kLoss(detail::not_empty(*this, a, reduction_), b, target, number_, reduction_);
  }

 protected:
  TripleNumberLoss(double number, const std::string& reduction) : number_(number), reduction_(reduction) {}

 private:
  double number_;
  std::string reduction_;
};

/// The class weights are the buffer "weight".
class CrossEntropyLoss : public LossModule<CrossEntropyLoss> {
 public:
  explicit CrossEntropyLoss(const ClassLossOptions& options = {});
  NDArray loss(const NDArray& logits, const NDArray& target) const;

 private:
  ClassLossOptions options_;
  Parameter weight_;
};

/// Takes log-probabilities. The class weights are the buffer "weight".
class NLLLoss : public LossModule<NLLLoss> {
 public:
  explicit NLLLoss(const ClassLossOptions& options = {});
  NDArray loss(const NDArray& log_probabilities, const NDArray& labels) const;

 private:
  ClassLossOptions options_;
  Parameter weight_;
};

/// Takes probabilities.
class BCELoss : public ReducedLoss<BCELoss, mx::bce_loss> {
 public:
  using ReducedLoss::ReducedLoss;
};

/// Takes logits. The weight of positive targets is the buffer "pos_weight".
class BCEWithLogitsLoss : public LossModule<BCEWithLogitsLoss> {
 public:
  explicit BCEWithLogitsLoss(const std::string& reduction = "mean", const NDArray& pos_weight = {});
  NDArray loss(const NDArray& x, const NDArray& target) const;

 private:
  std::string reduction_;
  Parameter pos_weight_;
};

class MSELoss : public ReducedLoss<MSELoss, mx::mse_loss> {
 public:
  using ReducedLoss::ReducedLoss;
};

class L1Loss : public ReducedLoss<L1Loss, mx::l1_loss> {
 public:
  using ReducedLoss::ReducedLoss;
};

class HuberLoss : public NumberLoss<HuberLoss, mx::huber_loss> {
 public:
  explicit HuberLoss(double delta = 1, const std::string& reduction = "mean")
      : NumberLoss(delta, reduction) {}
};

class SmoothL1Loss : public NumberLoss<SmoothL1Loss, mx::smooth_l1_loss> {
 public:
  explicit SmoothL1Loss(double beta = 1, const std::string& reduction = "mean")
      : NumberLoss(beta, reduction) {}
};

/// `reduction` may also be "batchmean".
class KLDivLoss : public LossModule<KLDivLoss> {
 public:
  explicit KLDivLoss(const std::string& reduction = "mean", bool log_target = false)
      : reduction_(reduction), log_target_(log_target) {}
  NDArray loss(const NDArray& x, const NDArray& target) const;

 private:
  std::string reduction_;
  bool log_target_;
};

class HingeLoss : public NumberLoss<HingeLoss, mx::hinge_loss> {
 public:
  explicit HingeLoss(double margin = 1, const std::string& reduction = "mean")
      : NumberLoss(margin, reduction) {}
};

class HingeEmbeddingLoss : public NumberLoss<HingeEmbeddingLoss, mx::hinge_embedding_loss> {
 public:
  explicit HingeEmbeddingLoss(double margin = 1, const std::string& reduction = "mean")
      : NumberLoss(margin, reduction) {}
};

class TripletMarginLoss : public TripleLossModule<TripletMarginLoss> {
 public:
  explicit TripletMarginLoss(const TripletOptions& options = {}) : options_(options) {}
  NDArray loss(const NDArray& anchor, const NDArray& positive, const NDArray& negative) const;

 private:
  TripletOptions options_;
};

class CosineEmbeddingLoss : public TripleNumberLoss<CosineEmbeddingLoss, cosine_embedding_loss> {
 public:
  explicit CosineEmbeddingLoss(double margin = 0, const std::string& reduction = "mean")
      : TripleNumberLoss(margin, reduction) {}
};

class MarginRankingLoss : public TripleNumberLoss<MarginRankingLoss, margin_ranking_loss> {
 public:
  explicit MarginRankingLoss(double margin = 0, const std::string& reduction = "mean")
      : TripleNumberLoss(margin, reduction) {}
};

}  // namespace mx::nn
