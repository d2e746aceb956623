// More losses of torch.nn: for counts, for several labels, for margins, and CTC. See losses.h.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>

#include "nn/losses.h"
#include "operators/ctc.h"

namespace mx::nn {

using mx::ctc_loss;
using mx::CtcOptions;

struct PoissonOptions {
  bool log_input = true;  ///< x is the logarithm of the rate, otherwise the rate
  bool full = false;      ///< adds Stirling's approximation of log(target!) for targets above 1
  double eps = 1e-8;      ///< added to a rate before its logarithm
  std::string reduction = "mean";
};
/// exp(x) - target x, or x - target log(x + eps): the negative log-likelihood of a Poisson distribution.
NDArray poisson_nll_loss(const Arg& x, const NDArray& target, const PoissonOptions& options = {});

struct GaussianOptions {
  bool full = false;  ///< adds the constant log(2 pi) / 2
  double eps = 1e-6;  ///< the smallest variance; the gradient is as if there were no limit
  std::string reduction = "mean";
};
/// (log(variance) + (x - target)^2 / variance) / 2. The variances have x's shape, or size 1 in its last
/// dimension, or lack that dimension. They must not be negative, which is not checked.
NDArray gaussian_nll_loss(const Arg& x, const NDArray& target, const NDArray& variance,
                          const GaussianOptions& options = {});

/// The mean over the classes of max(0, 1 - (x[label] - x[other])), summed over the labels of a sample, for
/// all classes that are not labels of it. x is (n, classes) or (classes,); the target has its shape: the
/// labels, and -1 after the last one. Any negative number ends the labels; PyTorch refuses those below -1.
NDArray multilabel_margin_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");

struct MultiMarginOptions {
  IntArg p = 1;  ///< 1 or 2
  double margin = 1;
  NDArray weight{};  ///< one for each class; an empty handle: all 1
  std::string reduction = "mean";
};
/// The mean over the classes of max(0, margin - x[label] + x[other])^p weight[label], without the label
/// itself. x is (n, classes) or (classes,), the labels are (n,) or ().
NDArray multi_margin_loss(const Arg& x, const NDArray& labels, const MultiMarginOptions& options = {});

/// The mean over the last dimension of bce_with_logits(x, target), times the class weights.
NDArray multilabel_soft_margin_loss(const Arg& x, const NDArray& target, const NDArray& weight = {},
                                    const std::string& reduction = "mean");
/// log(1 + exp(-target x)) for targets of -1 and 1.
NDArray soft_margin_loss(const Arg& x, const NDArray& target, const std::string& reduction = "mean");

/// A distance of the rows of two arrays, for triplet losses.
using Distance = std::function<NDArray(const NDArray&, const NDArray&)>;
struct TripletDistanceOptions {
  Distance distance{};  ///< empty: pairwise_distance()
  double margin = 1;
  bool swap = false;
  std::string reduction = "mean";
};
/// triplet_margin_loss with any distance.
NDArray triplet_margin_with_distance_loss(const Arg& anchor, const NDArray& positive, const NDArray& negative,
                                          const TripletDistanceOptions& options = {});

class PoissonNLLLoss : public LossModule<PoissonNLLLoss> {
 public:
  explicit PoissonNLLLoss(const PoissonOptions& options = {}) : options_(options) {}
  NDArray loss(const NDArray& x, const NDArray& target) const;

 private:
  PoissonOptions options_;
};

class GaussianNLLLoss : public TripleLossModule<GaussianNLLLoss> {
 public:
  explicit GaussianNLLLoss(const GaussianOptions& options = {}) : options_(options) {}
  NDArray loss(const NDArray& x, const NDArray& target, const NDArray& variance) const;

 private:
  GaussianOptions options_;
};

class MultiLabelMarginLoss : public ReducedLoss<MultiLabelMarginLoss, multilabel_margin_loss> {
 public:
  using ReducedLoss::ReducedLoss;
};

/// The class weights are the buffer "weight".
class MultiMarginLoss : public LossModule<MultiMarginLoss> {
 public:
  explicit MultiMarginLoss(const MultiMarginOptions& options = {});
  NDArray loss(const NDArray& x, const NDArray& labels) const;

 private:
  MultiMarginOptions options_;
  Parameter weight_;
};

/// The class weights are the buffer "weight".
class MultiLabelSoftMarginLoss : public LossModule<MultiLabelSoftMarginLoss> {
 public:
  explicit MultiLabelSoftMarginLoss(const NDArray& weight = {}, const std::string& reduction = "mean");
  NDArray loss(const NDArray& x, const NDArray& target) const;

 private:
  std::string reduction_;
  Parameter weight_;
};

class SoftMarginLoss : public ReducedLoss<SoftMarginLoss, soft_margin_loss> {
 public:
  using ReducedLoss::ReducedLoss;
};

class TripletMarginWithDistanceLoss : public TripleLossModule<TripletMarginWithDistanceLoss> {
 public:
  explicit TripletMarginWithDistanceLoss(const TripletDistanceOptions& options = {}) : options_(options) {}
  NDArray loss(const NDArray& anchor, const NDArray& positive, const NDArray& negative) const;

 private:
  TripletDistanceOptions options_;
};

/// ctc_loss(). Hooks receive the four arrays.
class CTCLoss : public ModuleOf<CTCLoss> {
 public:
  explicit CTCLoss(const CtcOptions& options = {}) : options_(options) {}
  NDArray operator()(const NDArray& log_probs, const NDArray& targets, const NDArray& input_lengths,
                     const NDArray& target_lengths,
                     std::source_location where = std::source_location::current()) const;

 private:
  CtcOptions options_;
};

/// pairwise_distance() and cosine_similarity() as modules of two arrays.
class PairwiseDistance : public LossModule<PairwiseDistance> {
 public:
  explicit PairwiseDistance(double p = 2, double eps = 1e-6, bool keep_dims = false)
      : p_(p), eps_(eps), keep_dims_(keep_dims) {}
  NDArray loss(const NDArray& a, const NDArray& b) const;

 private:
  double p_, eps_;
  bool keep_dims_;
};

class CosineSimilarity : public LossModule<CosineSimilarity> {
 public:
  explicit CosineSimilarity(IntArg axis = 1, double eps = 1e-8) : axis_(axis), eps_(eps) {}
  NDArray loss(const NDArray& a, const NDArray& b) const;

 private:
  int64_t axis_;
  double eps_;
};

}  // namespace mx::nn
