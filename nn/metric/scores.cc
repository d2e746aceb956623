#include "nn/metric/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/metric/inputs.h"

namespace mx::metric {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

IntArg checked_classes(const char* name, IntArg classes, Average average) {
  MX_CHECK(average != Average::binary || classes == 2, InvalidArgument, "[", name,
           "] expected 2 classes with Average::binary, got ", classes);
  return classes;
}

/// The counts of a confusion matrix.
struct Marginals {
  std::vector<double> right, labels, predictions;
  double all = 0, all_right = 0;

  explicit Marginals(const NDArray& matrix) {
    const auto n = static_cast<size_t>(matrix.size(0));
    const std::vector<int64_t> counts = matrix.to_vector<int64_t>();
    right.resize(n), labels.resize(n), predictions.resize(n);
    for (size_t label = 0; label < n; ++label)
      for (size_t prediction = 0; prediction < n; ++prediction) {
        const auto count = static_cast<double>(counts[label * n + prediction]);
        labels[label] += count;
        predictions[prediction] += count;
        all += count;
        if (label == prediction) right[label] = count, all_right += count;
      }
  }
};

/// Returns the average of 2 * right / (a * labels + b * predictions): F1 for a = b = 1, recall for a = 2,
/// precision for b = 2.
double average_of(const Marginals& m, Average average, double a, double b) {
  if (m.all == 0) return kUndefined;
  if (average == Average::micro) return m.all_right / m.all;
  const auto score = [&](size_t c) { return 2 * m.right[c] / (a * m.labels[c] + b * m.predictions[c]); };
  if (average == Average::binary) return score(1);
  double sum = 0, classes = 0;
  for (size_t c = 0; c < m.right.size(); ++c) {
    if (m.labels[c] == 0 && m.predictions[c] == 0) continue;
    ++classes;
    if (m.right[c] > 0) sum += score(c);
  }
  return sum / classes;
}

}  // namespace

F1::F1(IntArg classes, Average average, const ClassOptions& options)
    : ConfusionMatrix(checked_classes("f1", classes, average), options), average_(average) {}
double F1::value() const { return average_of(Marginals(matrix()), average_, 1, 1); }

Precision::Precision(IntArg classes, Average average, const ClassOptions& options,
                     std::source_location where) try
    : ConfusionMatrix(checked_classes("precision", classes, average), options, where), average_(average) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

double Precision::value() const { return average_of(Marginals(matrix()), average_, 0, 2); }

Recall::Recall(IntArg classes, Average average, const ClassOptions& options, std::source_location where) try
    : ConfusionMatrix(checked_classes("recall", classes, average), options, where), average_(average) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

double Recall::value() const { return average_of(Marginals(matrix()), average_, 2, 0); }

double MCC::value() const {
  const Marginals m{matrix()};
  if (m.all == 0) return kUndefined;
  double both = 0, labels = 0, predictions = 0;
  for (size_t c = 0; c < m.right.size(); ++c) {
    both += m.labels[c] * m.predictions[c];
    labels += m.labels[c] * m.labels[c];
    predictions += m.predictions[c] * m.predictions[c];
  }
  const double x = m.all * m.all - labels, y = m.all * m.all - predictions;
  return x == 0 || y == 0 ? 0 : (m.all_right * m.all - both) / (std::sqrt(x) * std::sqrt(y));
}

struct RocAuc::Batches {
  std::mutex mutex;
  std::vector<std::pair<NDArray, NDArray>> list;  // scores, f64, and labels, i64
};

RocAuc::RocAuc() : batches_(std::make_shared<Batches>()) {}

void RocAuc::update(const NDArray& scores, const NDArray& labels, std::source_location where) try {
  MX_CHECK(scores.defined() && labels.defined() && is_floating(scores.dtype()) &&
               is_integral(labels.dtype()) && scores.shape() == labels.shape(),
           InvalidArgument, "[roc_auc] expected floating-point scores and integer labels of one shape, got ",
           describe(scores), " and ", describe(labels));
  // Copies, because the program may change its arrays before value() reads them.
  const NDArray x = input_of(scores, f64, "roc_auc", "scores", where);
  const NDArray y = input_of(labels, i64, "roc_auc", "labels", where);
  const std::lock_guard lock(batches_->mutex);
  batches_->list.emplace_back(x.clone(), y.clone());
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

double RocAuc::value() const {
  std::vector<std::pair<NDArray, NDArray>> list;
  {
    const std::lock_guard lock(batches_->mutex);
    list = batches_->list;
  }
  std::vector<std::pair<double, bool>> samples;
  bool has_nan = false;
  for (const auto& [scores, labels] : list) {
    const std::vector<double> x = scores.to_vector<double>();
    const std::vector<int64_t> y = labels.to_vector<int64_t>();
    for (size_t i = 0; i < x.size(); ++i) {
      MX_CHECK(y[i] == 0 || y[i] == 1, InvalidArgument, "[roc_auc] expected labels 0 and 1, got ", y[i]);
      has_nan = has_nan || std::isnan(x[i]);
      samples.emplace_back(x[i], y[i] == 1);
    }
  }
  if (has_nan) return kUndefined;
  std::sort(samples.begin(), samples.end());
  double positives = 0, negatives = 0, pairs = 0;  // pairs: (positive, negative), the positive ranked higher
  for (size_t i = 0; i < samples.size();) {
    double here = 0, others = 0;  // positives and negatives with this score
    const double score = samples[i].first;
    for (; i < samples.size() && samples[i].first == score; ++i) (samples[i].second ? here : others) += 1;
    pairs += here * (negatives + others / 2);
    positives += here;
    negatives += others;
  }
  return positives == 0 || negatives == 0 ? kUndefined : pairs / (positives * negatives);
}

void RocAuc::reset() {
  const std::lock_guard lock(batches_->mutex);
  batches_->list.clear();
}

}  // namespace mx::metric
