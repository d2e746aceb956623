// Metrics of classification: TopK, Accuracy, ConfusionMatrix.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/launch.h"
#include "nn/metric/inputs.h"
#include "nn/metric/metric.h"
#include "nn/metric/rows.h"

namespace mx::metric {

using detail::ClassAttrs;
using detail::for_each_row;

namespace {

using mx::detail::ArrayImpl;

constexpr int64_t kDirectElements = 1024;  // about 2 us of work

void add_to(int64_t& count, int64_t more) {
  std::atomic_ref<int64_t>(count).fetch_add(more, std::memory_order_relaxed);
}

class TopKCount {
 public:
  TopKCount(int64_t* counts, int64_t k) : counts_(counts), k_(k) {}
  TopKCount(const TopKCount&) = delete;
  ~TopKCount() {
    add_to(counts_[0], hits_);
    add_to(counts_[1], all_);
  }
  template <class R>
  void operator()(const R& row, int64_t) {
    hits_ += row.rank() < k_;
    ++all_;
  }

 private:
  int64_t* counts_;
  int64_t k_, hits_ = 0, all_ = 0;
};

void run_top_k(const KernelArgs& args) {
  for_each_row(args, "top_k",
               [&] { return TopKCount(args.out[0].as<int64_t>(), args.attr<ClassAttrs>().k); });
}
const Kernel kTopK = {"top_k", run_top_k, nullptr, kDirectElements};

void run_confusion(const KernelArgs& args) {
  auto* const counts = args.out[0].as<int64_t>();
  for_each_row(args, "confusion_matrix", [&] {
    return [counts](const auto& row, int64_t) { add_to(counts[row.label * row.classes + row.best()], 1); };
  });
}
const Kernel kConfusion = {"confusion_matrix", run_confusion, nullptr, kDirectElements};

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN()
                    : static_cast<double>(part) / static_cast<double>(whole);
}

/// The values of a confusion matrix, copied to the host.
struct Table {
  std::vector<int64_t> counts;
  size_t n;

  explicit Table(const NDArray& matrix)
      : counts(matrix.to_vector<int64_t>()), n(static_cast<size_t>(matrix.size(0))) {}
  int64_t at(size_t label, size_t prediction) const { return counts[label * n + prediction]; }
  int64_t labels(size_t c) const {
    int64_t sum = 0;
    for (size_t i = 0; i < n; ++i) sum += at(c, i);
    return sum;
  }
  int64_t predictions(size_t c) const {
    int64_t sum = 0;
    for (size_t i = 0; i < n; ++i) sum += at(i, c);
    return sum;
  }
  template <class F>
  std::vector<double> for_each_class(const F& f) const {
    std::vector<double> values;
    for (size_t c = 0; c < n; ++c) values.push_back(f(c));
    return values;
  }
};

}  // namespace

TopK::TopK(IntArg k, const ClassOptions& options, std::source_location where) try
    : k_(k), options_(options), counts_(zeros({2}, i64)) {
  MX_CHECK(k >= 1, InvalidArgument, "[top_k] expected k of 1 or more, got ", k);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void TopK::update(const NDArray& logits, const NDArray& labels, std::source_location where) {
  detail::add_counts(kTopK, counts_, logits, labels, options_, k_, -1, where);
}

double TopK::value() const {
  const std::vector<int64_t> counts = counts_.to_vector<int64_t>();
  return ratio(counts[0], counts[1]);
}

int64_t TopK::count() const { return counts_.to_vector<int64_t>()[1]; }
int64_t TopK::hits() const { return counts_.to_vector<int64_t>()[0]; }
void TopK::reset() { counts_.fill_(0); }

ConfusionMatrix::ConfusionMatrix(IntArg classes, const ClassOptions& options, std::source_location where) try
    : classes_(classes), options_(options) {
  MX_CHECK(classes >= 1, InvalidArgument, "[confusion_matrix] expected 1 class or more, got ", classes);
  counts_ = zeros({classes, classes}, i64);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void ConfusionMatrix::update(const NDArray& logits, const NDArray& labels, std::source_location where) {
  detail::add_counts(kConfusion, counts_, logits, labels, options_, 1, classes_, where);
}

NDArray ConfusionMatrix::matrix() const { return counts_.clone(); }

double ConfusionMatrix::value() const {
  const Table table(counts_);
  int64_t right = 0, all = 0;
  for (size_t c = 0; c < table.n; ++c) {
    right += table.at(c, c);
    all += table.labels(c);
  }
  return ratio(right, all);
}

std::vector<double> ConfusionMatrix::precision() const {
  const Table table(counts_);
  return table.for_each_class([&](size_t c) { return ratio(table.at(c, c), table.predictions(c)); });
}

std::vector<double> ConfusionMatrix::recall() const {
  const Table table(counts_);
  return table.for_each_class([&](size_t c) { return ratio(table.at(c, c), table.labels(c)); });
}

std::vector<double> ConfusionMatrix::f1() const {
  const Table table(counts_);
  return table.for_each_class(
      [&](size_t c) { return ratio(2 * table.at(c, c), table.labels(c) + table.predictions(c)); });
}

void ConfusionMatrix::reset() { counts_.fill_(0); }

}  // namespace mx::metric
