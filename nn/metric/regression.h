// Metrics of numbers: mean errors and correlation. See metric.h.
#pragma once

#include <source_location>
#include <vector>

#include "nn/metric/metric.h"

namespace mx::metric {

/// The base of metrics that compare predictions with targets, element by element. Observation::logits are the
/// predictions, Observation::labels the targets.
class PairMetric : public Metric {
 public:
  /// Adds a batch: two arrays of one shape, of any types but bool. Accumulates in f64.
  void update(const NDArray& predictions, const NDArray& targets,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  void reset() override;
  std::vector<NDArray> sums() const override { return {sums_}; }

 protected:
  explicit PairMetric(const char* name);
  /// Sums over all pairs (x, y).
  struct Sums {
    double n, absolute, squared;  ///< 1, |x - y|, (x - y)^2
    double x, y, xx, yy, xy;
  };
  /// Waits.
  Sums totals() const;

 private:
  const char* name_;
  NDArray sums_;  // f64 (8,), as in Sums
};

/// The mean of |x - y|.
class MAE : public PairMetric {
 public:
  MAE() : PairMetric("mae") {}
  double value() const override;
};

/// The mean of (x - y)^2.
class MSE : public PairMetric {
 public:
  MSE() : PairMetric("mse") {}
  double value() const override;
};

/// The square root of the mean of (x - y)^2.
class RMSE : public PairMetric {
 public:
  RMSE() : PairMetric("rmse") {}
  double value() const override;
};

/// Pearson's correlation of x and y; NaN if one of them is constant. Computed from sums of powers, so the
/// error is about 1e-16 times the square of mean / standard deviation.
class Pearson : public PairMetric {
 public:
  Pearson() : PairMetric("pearson") {}
  double value() const override;
};

}  // namespace mx::metric
