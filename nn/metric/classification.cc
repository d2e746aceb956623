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
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/launch.h"
#include "nn/metric/inputs.h"
#include "nn/metric/metric.h"

namespace mx::metric {
namespace {

using mx::detail::ArrayImpl;

constexpr int64_t kDirectElements = 1024;  // about 2 us of work

struct ClassAttrs {
  int64_t axis = 0;
  int64_t ignore = -100;
  int64_t k = 1;
  template <class V>
  static void fields(V&&) {}
};

/// Returns true if score a ranks above score b, regardless of their classes.
template <class T>
bool above(T a, T b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

/// One row of scores and its label.
template <class T>
struct Row {
  const T* scores;
  int64_t step, classes, label;

  auto score(int64_t c) const {
    if constexpr (std::is_same_v<T, double>) {
      return scores[c * step];
    } else {
      return static_cast<float>(scores[c * step]);
    }
  }
  int64_t best() const {
    int64_t place = 0;
    for (int64_t c = 1; c < classes; ++c)
      if (above(score(c), score(place))) place = c;
    return place;
  }
  /// Returns the number of classes that rank above the label's class.
  int64_t rank() const {
    const auto own = score(label);
    int64_t before = 0;
    for (int64_t c = 0; c < classes; ++c)
      before += above(score(c), own) || (c < label && !above(own, score(c)));
    return before;
  }
};

void check_labels(const Tensor& labels, int64_t classes, int64_t ignore, const char* op) {
  // In row-major order, so that the error always names the first invalid label.
  const Tensor order{nullptr, i64, labels.shape, contiguous_strides(labels.shape)};
  const kernels::LoopPlan<2> plan({&order, &labels});
  const int64_t step = plan.strides[1][0];
  kernels::for_each_run<2>(plan, 0, plan.numel, [&](const int64_t* at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t label = labels.as<const int64_t>()[at[1] + i * step];
      MX_CHECK((label >= 0 && label < classes) || label == ignore, InvalidArgument, "[", op,
               "] expected labels from 0 to ", classes - 1, " or ", ignore, ", got ", label, " at position ",
               at[0] + i * plan.strides[0][0]);
    }
  });
}

/// Calls count = make() for each run of rows, on several threads, and count(row) for each row of the run
/// whose label is not ignored.
template <class Make>
void for_each_row(const KernelArgs& args, const char* op, const Make& make) {
  const auto& attrs = args.attr<ClassAttrs>();
  const Tensor &scores = args.in[0], &labels = args.in[1];
  const int axis = static_cast<int>(attrs.axis);
  const int64_t classes = scores.shape[axis], class_step = scores.strides[axis];
  check_labels(labels, classes, attrs.ignore, op);
  Tensor first = scores;  // the scores of class 0
  first.shape.erase(axis);
  first.strides.erase(axis);
  const kernels::LoopPlan<2> plan({&labels, &first});
  const int64_t label_step = plan.strides[0][0], row_step = plan.strides[1][0];
  const int64_t grain = std::max<int64_t>(1, kernels::kLoopGrain / 4 / std::max<int64_t>(classes, 1));
  visit(scores.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>) {
      kernels::parallel_runs<2>(
          plan,
          [&](const int64_t* at, int64_t n) {
            auto count = make();
            for (int64_t i = 0; i < n; ++i) {
              const int64_t label = labels.as<const int64_t>()[at[0] + i * label_step];
              if (label == attrs.ignore) continue;
              count(Row<T>{scores.as<const T>() + at[1] + i * row_step, class_step, classes, label});
            }
          },
          grain);
    }
  });
}

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
  void operator()(const R& row) {
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
    return [counts](const auto& row) { add_to(counts[row.label * row.classes + row.best()], 1); };
  });
}
const Kernel kConfusion = {"confusion_matrix", run_confusion, nullptr, kDirectElements};

/// Launches a kernel that adds the results of scores and labels to `counts`. If `classes` is -1, any number
/// of classes of at least k is accepted.
void add_counts(const Kernel& kernel, const NDArray& counts, const NDArray& logits, const NDArray& labels,
                const ClassOptions& options, int64_t k, int64_t classes, std::source_location where) {
  const char* const op = kernel.name;
  MX_CHECK(logits.defined() && labels.defined(), InvalidArgument, "[", op,
           "] expected logits and labels, got ", describe(logits), " and ", describe(labels));
  MX_CHECK(is_floating(logits.dtype()) && logits.rank() >= 1, InvalidArgument, "[", op,
           "] expected floating-point logits of rank 1 or more, with a dimension of classes, got ",
           describe(logits));
  const int axis = normalize_axis(options.axis, logits.rank(), op);
  Shape rows = logits.shape();
  rows.erase(axis);
  MX_CHECK(is_integral(labels.dtype()) && labels.shape() == rows, InvalidArgument, "[", op,
           "] expected integer labels of shape ", rows, " for logits ", logits.shape(),
           " with classes in dimension ", axis, ", got ", describe(labels));
  const int64_t got = logits.size(axis);
  MX_CHECK(classes == -1 ? got >= k : got == classes, InvalidArgument, "[", op, "] expected ",
           classes == -1 ? k : classes, classes == -1 ? " classes or more" : " classes",
           ", got logits of shape ", logits.shape());
  if (labels.numel() == 0) return;
  const NDArray scores = input_of(logits, logits.dtype(), op, "logits", where);
  const NDArray classes_of = input_of(labels, i64, op, "labels", where);
  const Attrs attrs = ClassAttrs{axis, options.ignore_index, k};
  ArrayImpl* const in[] = {&scores.impl(), &classes_of.impl()};
  ArrayImpl* const out[] = {&counts.impl()};
  launch({.kernel = &kernel,
          .attrs = &attrs,
          .inputs = in,
          .outputs = out,
          .partial_outputs = true,  // the kernel adds to their old values
          .work = logits.numel(),
          .where = where});
}

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

TopK::TopK(int64_t k, const ClassOptions& options) : k_(k), options_(options), counts_(zeros({2}, i64)) {
  MX_CHECK(k >= 1, InvalidArgument, "[top_k] expected k of 1 or more, got ", k);
}

void TopK::update(const NDArray& logits, const NDArray& labels, std::source_location where) {
  add_counts(kTopK, counts_, logits, labels, options_, k_, -1, where);
}

double TopK::value() const {
  const std::vector<int64_t> counts = counts_.to_vector<int64_t>();
  return ratio(counts[0], counts[1]);
}

int64_t TopK::count() const { return counts_.to_vector<int64_t>()[1]; }
int64_t TopK::hits() const { return counts_.to_vector<int64_t>()[0]; }
void TopK::reset() { counts_.fill_(0); }

ConfusionMatrix::ConfusionMatrix(int64_t classes, const ClassOptions& options)
    : classes_(classes), options_(options) {
  MX_CHECK(classes >= 1, InvalidArgument, "[confusion_matrix] expected 1 class or more, got ", classes);
  counts_ = zeros({classes, classes}, i64);
}

void ConfusionMatrix::update(const NDArray& logits, const NDArray& labels, std::source_location where) {
  add_counts(kConfusion, counts_, logits, labels, options_, 1, classes_, where);
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
