// Loops over rows of scores with their labels, for metrics of classification. Internal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <source_location>
#include <type_traits>

#include "engine/base/check.h"
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/launch.h"
#include "nn/metric/metric.h"

namespace mx::metric::detail {

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

inline void check_labels(const Tensor& labels, int64_t classes, int64_t ignore, const char* op) {
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

/// Calls count = make() for each run of rows, on several threads, and count(row, i) for each row of the run
/// whose label is not ignored; i is the row's number in row-major order.
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
  const Tensor order{nullptr, i64, labels.shape, contiguous_strides(labels.shape)};
  const kernels::LoopPlan<3> plan({&labels, &first, &order});
  const int64_t label_step = plan.strides[0][0], row_step = plan.strides[1][0];
  const int64_t grain = std::max<int64_t>(1, kernels::kLoopGrain / 4 / std::max<int64_t>(classes, 1));
  visit(scores.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>) {
      kernels::parallel_runs<3>(
          plan,
          [&](const int64_t* at, int64_t n) {
            auto count = make();
            for (int64_t i = 0; i < n; ++i) {
              const int64_t label = labels.as<const int64_t>()[at[0] + i * label_step];
              if (label == attrs.ignore) continue;
              count(Row<T>{scores.as<const T>() + at[1] + i * row_step, class_step, classes, label},
                    at[2] + i * plan.strides[2][0]);
            }
          },
          grain);
    }
  });
}

/// Launches a kernel that adds the results of scores and labels to `sums`. If `classes` is -1, any number of
/// classes of at least k is accepted. Throws InvalidArgument for shapes and types that do not fit.
void add_counts(const Kernel& kernel, const NDArray& sums, const NDArray& logits, const NDArray& labels,
                const ClassOptions& options, int64_t k, int64_t classes, std::source_location where);

}  // namespace mx::metric::detail
