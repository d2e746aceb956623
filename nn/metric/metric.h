// Metrics: numbers about a model's results that add up batch by batch.
//
//   metric::Accuracy accuracy;
//   for (...) accuracy.update(logits, labels);     // returns at once
//   std::cout << accuracy.value() << '\n';         // waits
//
// update() pushes operations that add to arrays of counts on the CPU; arguments may be on any devices, also
// on different ones, and nothing is recorded for gradients. value() waits for all of them. What is wrong with
// shapes and types is thrown by update(); a label that is no class comes out of value(), from then on until
// reset().
//
// Metrics are handles: a copy adds to the same counts. Thread-safety: that of NDArray; threads may update one
// metric at once, and counts do not depend on their order (sums of losses do, in the last place).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::metric {

/// What a step of training or testing shows; those that a metric does not use may be empty handles.
struct Observation {
  const NDArray& logits;
  const NDArray& labels;
  const NDArray& loss;
};

class Metric {
 public:
  virtual ~Metric() = default;
  virtual void observe(const Observation& step, std::source_location where) = 0;
  /// NaN before the first update.
  virtual double value() const = 0;
  /// Forgets everything, errors too.
  virtual void reset() = 0;
};

struct ClassOptions {
  int64_t axis = -1;            ///< the dimension of the scores that counts the classes
  int64_t ignore_index = -100;  ///< places with this label do not count
};

/// Top-k accuracy: the fraction of samples whose label is among the k classes with the highest scores. A tie
/// goes to the class with the lower number; NaN ranks above every number.
class TopK : public Metric {
 public:
  /// Throws InvalidArgument for k below 1.
  explicit TopK(int64_t k, const ClassOptions& options = {});

  /// Scores of any floating type, e.g. (n, classes); labels of any integral type in their shape without the
  /// axis, (n,).
  void update(const NDArray& logits, const NDArray& labels,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  /// From 0 to 1.
  double value() const override;
  /// How many labels have counted, and how many of them were hit. These wait.
  int64_t count() const;
  int64_t hits() const;
  void reset() override;

 private:
  int64_t k_;
  ClassOptions options_;
  NDArray counts_;  // i64 (2,): hits, all
};

/// Top-1 accuracy: the fraction of samples whose label has the highest score.
class Accuracy : public TopK {
 public:
  explicit Accuracy(const ClassOptions& options = {}) : TopK(1, options) {}
};

/// Counts of (label, predicted class) pairs; the prediction is the class with the highest score.
class ConfusionMatrix : public Metric {
 public:
  /// Throws InvalidArgument for fewer than 1 class.
  explicit ConfusionMatrix(int64_t classes, const ClassOptions& options = {});

  /// As for TopK, with as many scores as there are classes.
  void update(const NDArray& logits, const NDArray& labels,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  /// i64 (classes, classes): row label, column prediction. A copy, as of now; does not wait.
  NDArray matrix() const;

  // The following wait.
  /// The accuracy: correct predictions over all. NaN before the first update.
  double value() const override;
  // One entry per class; NaN where the denominator is 0.
  std::vector<double> precision() const;  ///< correct predictions of the class / predictions of the class
  std::vector<double> recall() const;     ///< correct predictions of the class / labels of the class
  std::vector<double> f1() const;         ///< the harmonic mean of precision and recall
  void reset() override;

 private:
  int64_t classes_;
  ClassOptions options_;
  NDArray counts_;
};

/// The mean of losses.
class MeanLoss : public Metric {
 public:
  MeanLoss();

  /// Every element of `loss`, of any floating type, is the mean over `samples` samples: 1 where there is a
  /// loss for each, the batch's size for a mean over the batch. Added in f64. Throws InvalidArgument for
  /// other types and `samples` below 1.
  void update(const NDArray& loss, int64_t samples = 1,
              std::source_location where = std::source_location::current());
  /// With as many samples as there are labels, where those are given and the loss is one number.
  void observe(const Observation& step, std::source_location where) override;
  double value() const override;
  void reset() override;

 private:
  NDArray sums_;  // f64 (2,): of losses, of samples
};

/// Several metrics by name, of the same steps.
class Composite {
 public:
  Composite() = default;
  /// Adds one; the caller may keep a copy of it, which shares its counts. Throws InvalidArgument when the
  /// name is taken.
  template <class M>
  Composite& add(const std::string& name, M metric) {
    add_shared(name, std::make_shared<M>(std::move(metric)));
    return *this;
  }

  /// Throws InvalidArgument, with the metric's name, where one of them needs what is not given.
  void update(const NDArray& logits, const NDArray& labels, const NDArray& loss = {},
              std::source_location where = std::source_location::current());
  /// In the order in which they were added. Waits.
  std::vector<std::pair<std::string, double>> values() const;
  /// Throws InvalidArgument for a name that is not there.
  double value(const std::string& name) const;
  void reset();

 private:
  void add_shared(const std::string& name, std::shared_ptr<Metric> metric);

  std::vector<std::pair<std::string, std::shared_ptr<Metric>>> metrics_;
};

}  // namespace mx::metric
