// Scores of classifiers: precision, recall and F1, Matthews' correlation, the area under the ROC curve. See
// metric.h. All but the last are computed from a confusion matrix.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "nn/metric/metric.h"

namespace mx::metric {

enum class Average : uint8_t {
  binary,  ///< the score of class 1, for two classes; NaN if its denominator is 0
  micro,   ///< of all decisions together; for F1, precision and recall that is the accuracy
  macro  ///< the mean of the scores of all classes that occur among labels or predictions; 0 where a score is
         ///< undefined
};

/// F1: the harmonic mean of precision and recall.
class F1 : public ConfusionMatrix {
 public:
  /// Throws InvalidArgument for Average::binary with another number of classes than 2.
  explicit F1(IntArg classes = 2, Average average = Average::binary, const ClassOptions& options = {});
  double value() const override;

 private:
  Average average_;
};

class Precision : public ConfusionMatrix {
 public:
  explicit Precision(IntArg classes = 2, Average average = Average::binary, const ClassOptions& options = {},
                     std::source_location where = std::source_location::current());
  double value() const override;

 private:
  Average average_;
};

class Recall : public ConfusionMatrix {
 public:
  explicit Recall(IntArg classes = 2, Average average = Average::binary, const ClassOptions& options = {},
                  std::source_location where = std::source_location::current());
  double value() const override;

 private:
  Average average_;
};

/// Matthews' correlation coefficient, for any number of classes (Gorodkin's R_K): 1 for a perfect prediction,
/// 0 for a random one. 0 if all labels or all predictions are one class; NaN before the first update.
class MCC : public ConfusionMatrix {
 public:
  explicit MCC(IntArg classes = 2, const ClassOptions& options = {},
               std::source_location where = std::source_location::current())
      : ConfusionMatrix(classes, options, where) {}
  double value() const override;
};

/// The area under the ROC curve: the probability that a sample of class 1 has a higher score than one of
/// class 0, where a tie counts one half. Exact: it keeps all scores and labels in memory, and value() sorts
/// them, so its counts cannot be added up by sync(). NaN if a class does not occur, or a score is NaN.
class RocAuc : public Metric {
 public:
  RocAuc();
  /// Adds a batch: scores of any floating-point type, and labels of an integral type and the same shape.
  /// value() throws InvalidArgument for labels other than 0 and 1.
  void update(const NDArray& scores, const NDArray& labels,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  double value() const override;
  void reset() override;

 private:
  struct Batches;
  std::shared_ptr<Batches> batches_;
};

}  // namespace mx::metric
