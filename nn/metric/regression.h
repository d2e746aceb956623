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
  enum class Sums {
    errors,  ///< the number of pairs, the sums of |x - y| and (x - y)^2
    moments  ///< the number of pairs, the means of x and y, the sums of dx^2, dy^2 and dx * dy, where dx and
             ///< dy are the differences from the means
  };
  PairMetric(const char* name, Sums kind);
  /// Waits.
  std::vector<double> totals() const { return sums_.to_vector<double>(); }

 private:
  const char* name_;
  Sums kind_;
  NDArray sums_;  // f64
};

/// The mean of |x - y|.
class MAE : public PairMetric {
 public:
  MAE() : PairMetric("mae", Sums::errors) {}
  double value() const override;
};

/// The mean of (x - y)^2.
class MSE : public PairMetric {
 public:
  MSE() : PairMetric("mse", Sums::errors) {}
  double value() const override;
};

/// The square root of the mean of (x - y)^2.
class RMSE : public PairMetric {
 public:
  RMSE() : PairMetric("rmse", Sums::errors) {}
  double value() const override;
};

/// Pearson's correlation of x and y; NaN if one of them is constant. Accumulates means and sums of products
/// of differences from them, so large means lose no digits.
class Pearson : public PairMetric {
 public:
  Pearson() : PairMetric("pearson", Sums::moments) {}
  double value() const override;
  bool sums_add_up() const override { return false; }
  void join(const std::vector<NDArray>& rows, std::source_location where) const override;
};

}  // namespace mx::metric
