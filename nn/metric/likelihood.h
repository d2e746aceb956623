// Metrics of predicted probabilities: cross-entropy, negative log-likelihood, perplexity. See metric.h.
#pragma once

#include <source_location>
#include <vector>

#include "nn/metric/metric.h"

namespace mx::metric {

/// The mean of -log(softmax(logits)[label]) over all labels that are not ignored.
class CrossEntropy : public Metric {
 public:
  explicit CrossEntropy(const ClassOptions& options = {}) : CrossEntropy(options, false) {}

  /// Adds a batch as in TopK::update(). Accumulates in f64, in the order of the rows.
  void update(const NDArray& logits, const NDArray& labels,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  double value() const override;
  void reset() override;
  std::vector<NDArray> sums() const override { return {sums_}; }

 protected:
  CrossEntropy(const ClassOptions& options, bool log_probabilities);

 private:
  ClassOptions options_;
  bool log_probabilities_;
  NDArray sums_;  // f64 (2,): the sum of losses, the number of labels
};

/// The same for log-probabilities instead of logits: the mean of -x[label].
class NLL : public CrossEntropy {
 public:
  explicit NLL(const ClassOptions& options = {}) : CrossEntropy(options, true) {}
};

/// exp(cross-entropy): the number of classes among which a uniform guess would be as good.
class Perplexity : public CrossEntropy {
 public:
  explicit Perplexity(const ClassOptions& options = {}) : CrossEntropy(options) {}
  double value() const override;
};

}  // namespace mx::metric
