// Metrics: statistics of a model's results, accumulated batch by batch.
//
//   metric::Accuracy accuracy;
//   for (...) accuracy.update(logits, labels);     // returns at once
//   std::cout << accuracy.value() << '\n';         // waits
//
// update() pushes operations that add to arrays of counts on the CPU. Its arguments may be on any devices,
// also on different ones, and nothing is recorded for gradients. value() waits for these operations. update()
// throws if shapes or types do not fit. A label that is not a class is found when the operation runs: value()
// throws from then on, until reset().
//
// Metrics are handles: a copy adds to the same counts. Thread-safety: that of NDArray. Several threads may
// update one metric at once. Counts do not depend on the order of updates; sums of losses do, in the last
// digit.
//
// With several processes, each measures its own batches; sync() (at the end of this file) adds their counts
// up.
//
// Further metrics: likelihood.h (cross-entropy, perplexity), regression.h (errors, correlation), scores.h
// (F1, Matthews' correlation, area under the ROC curve).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::metric {

namespace detail {
/// Throws InvalidArgument if there are no sums.
void check_sums(const std::vector<NDArray>& sums, const std::string& name, std::source_location where);
/// Returns an array with `count` rows, of which row `index` is `values` and the others are 0.
NDArray as_row(const NDArray& values, int64_t index, int64_t count);
}  // namespace detail

/// The results of one step of training or testing. Fields that a metric does not use may be empty handles.
struct Observation {
  const NDArray& logits;
  const NDArray& labels;
  const NDArray& loss;
};

class Metric {
 public:
  virtual ~Metric() = default;
  virtual void observe(const Observation& step, std::source_location where) = 0;
  /// Returns the metric of all updates; NaN before the first one. Waits for them.
  virtual double value() const = 0;
  /// Removes all counts and errors.
  virtual void reset() = 0;
  /// Returns the arrays of counts and sums, which are those in use. Empty if the metric has no such arrays.
  virtual std::vector<NDArray> sums() const { return {}; }
  /// Returns true if the sums of these arrays over several metrics of one kind are the arrays of all their
  /// updates together. Otherwise join() computes those.
  virtual bool sums_add_up() const { return true; }
  /// Replaces sums() by the arrays of all updates of several metrics. `rows` has one array for each of
  /// sums(): its row i is the array of metric i. Only for metrics whose sums do not add up.
  virtual void join(const std::vector<NDArray>& rows, std::source_location where) const;
};

struct ClassOptions {
  IntArg axis = -1;            ///< the dimension of the scores that has one entry per class
  IntArg ignore_index = -100;  ///< entries with this label are not counted
};

/// Top-k accuracy: the fraction of samples whose label is among the k classes with the highest scores. A tie
/// goes to the class with the lower number; NaN ranks above every number.
class TopK : public Metric {
 public:
  /// Throws InvalidArgument for k below 1.
  explicit TopK(IntArg k, const ClassOptions& options = {},
                std::source_location where = std::source_location::current());

  /// Adds a batch: scores of any floating-point type, e.g. (n, classes), and labels of any integral type in
  /// the shape of the scores without the axis, (n,).
  void update(const NDArray& logits, const NDArray& labels,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  /// Returns a number from 0 to 1; NaN before the first update.
  double value() const override;
  /// count() is the number of labels, without ignored ones; hits() is how many of them were among the k. Both
  /// wait.
  int64_t count() const;
  int64_t hits() const;
  void reset() override;
  std::vector<NDArray> sums() const override { return {counts_}; }

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
  explicit ConfusionMatrix(IntArg classes, const ClassOptions& options = {},
                           std::source_location where = std::source_location::current());

  /// Adds a batch as in TopK::update(), with as many scores as there are classes.
  void update(const NDArray& logits, const NDArray& labels,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  /// Returns the counts, i64 (classes, classes): the row is the label, the column the prediction. The result
  /// is a copy, which later updates do not change. Does not wait.
  NDArray matrix() const;

  // The following wait.
  /// The accuracy: correct predictions over all. NaN before the first update.
  double value() const override;
  // One entry per class; NaN where the denominator is 0.
  std::vector<double> precision() const;  ///< correct predictions of the class / predictions of the class
  std::vector<double> recall() const;     ///< correct predictions of the class / labels of the class
  std::vector<double> f1() const;         ///< the harmonic mean of precision and recall
  void reset() override;
  std::vector<NDArray> sums() const override { return {counts_}; }

 private:
  int64_t classes_;
  ClassOptions options_;
  NDArray counts_;
};

/// The mean of losses.
class MeanLoss : public Metric {
 public:
  MeanLoss();

  /// Adds losses. Every element of `loss`, of any floating-point type, is the mean over `samples` samples: 1
  /// if each sample has its own loss, the batch size for a mean over the batch. Accumulates in f64. Throws
  /// InvalidArgument for another type and for `samples` below 1.
  void update(const NDArray& loss, IntArg samples = 1,
              std::source_location where = std::source_location::current());
  /// If there are labels and the loss is one number, `samples` is the number of labels.
  void observe(const Observation& step, std::source_location where) override;
  double value() const override;
  void reset() override;
  std::vector<NDArray> sums() const override { return {sums_}; }

 private:
  NDArray sums_;  // f64 (2,): the sum of losses, the number of samples
};

/// The mean of what the program's own function returns for each batch, e.g. a loss in other units. The
/// function calls operators and returns a floating-point array, whose elements all count the same; nothing
/// waits.
class Custom : public Metric {
 public:
  using Function = std::function<NDArray(const NDArray& logits, const NDArray& labels)>;
  /// Throws InvalidArgument for an empty function.
  explicit Custom(Function function, std::source_location where = std::source_location::current());
  void update(const NDArray& logits, const NDArray& labels,
              std::source_location where = std::source_location::current());
  void observe(const Observation& step, std::source_location where) override {
    update(step.logits, step.labels, where);
  }
  double value() const override { return mean_.value(); }
  void reset() override { mean_.reset(); }
  std::vector<NDArray> sums() const override { return mean_.sums(); }

 private:
  Function function_;
  MeanLoss mean_;
};

/// Several metrics of the same steps, each with a name.
class Composite {
 public:
  Composite() = default;
  /// Adds a metric. A copy that the caller keeps shares its counts. Throws InvalidArgument if the name is
  /// taken.
  template <class M>
  Composite& add(const std::string& name, M metric) {
    add_shared(name, std::make_shared<M>(std::move(metric)));
    return *this;
  }

  /// Updates all metrics, in the order in which they were added. Throws InvalidArgument, with the metric's
  /// name, if a metric needs an array that is not given or does not fit; the metrics before it have counted
  /// the batch, and reset() makes all agree again.
  void update(const NDArray& logits, const NDArray& labels, const NDArray& loss = {},
              std::source_location where = std::source_location::current());
  /// Returns names and values, in the order in which the metrics were added. Waits.
  std::vector<std::pair<std::string, double>> values() const;
  /// Returns the value of one metric. Waits. Throws InvalidArgument for an unknown name.
  double value(const std::string& name) const;
  void reset();
  const std::vector<std::pair<std::string, std::shared_ptr<Metric>>>& metrics() const { return metrics_; }

 private:
  void add_shared(const std::string& name, std::shared_ptr<Metric> metric);

  std::vector<std::pair<std::string, std::shared_ptr<Metric>>> metrics_;
};

/// Replaces a metric's counts by those of all processes of a KVStore, in all processes, which call
/// this in the same order. Returns at once. Call it once after an epoch, before value(); reset() begins a new
/// count. (Counts of a second sync() without reset() would be added several times.) `name` names the values
/// in errors. Throws InvalidArgument for a metric without sums().
template <class Store>
void sync(const Metric& metric, Store& store, const std::string& name,
          std::source_location where = std::source_location::current()) {
  const std::vector<NDArray> sums = metric.sums();
  detail::check_sums(sums, name, where);
  if (metric.sums_add_up()) {
    for (size_t i = 0; i < sums.size(); ++i)
      store.allreduce({name + ' ' + std::to_string(i)}, {sums[i]}, {sums[i]});
    return;
  }
  std::vector<NDArray> rows;
  for (size_t i = 0; i < sums.size(); ++i) {
    rows.push_back(detail::as_row(sums[i], store.rank(), store.size()));
    store.allreduce({name + ' ' + std::to_string(i)}, {rows[i]}, {rows[i]});
  }
  metric.join(rows, where);
}
template <class Store>
void sync(const Composite& metrics, Store& store, const std::string& name = "metric",
          std::source_location where = std::source_location::current()) {
  for (const auto& [own, metric] : metrics.metrics()) sync(*metric, store, name + ' ' + own, where);
}

}  // namespace mx::metric
