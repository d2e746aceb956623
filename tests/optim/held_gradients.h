// Gradients without automatic differentiation, which is a layer above: requires_grad_(), grad() and
// set_grad() just store their values. During its lifetime the object counts the calls that would have been
// recorded.
#pragma once

#include <map>

#include "ndarray/hooks.h"
#include "ndarray/ndarray.h"

namespace mx::test {

class HeldGradients {
 public:
  HeldGradients() : before_(detail::hooks()) {
    gradients().clear();
    recorded() = 0;
    detail::Hooks& table = detail::hooks();
    table.viewed = [](detail::ArrayImpl&, detail::ArrayImpl&) { ++recorded(); };
    table.copied = [](detail::ArrayImpl&, detail::ArrayImpl&) { ++recorded(); };
    table.assigning = [](detail::ArrayImpl&, const char*) { ++recorded(); };
    table.assigned = [](detail::ArrayImpl&, detail::ArrayImpl*) { ++recorded(); };
    table.requires_grad = [](const NDArray& array, GradReq) {
      array.impl().flags.fetch_or(detail::kRecorded);
      gradients()[&array.impl()];
    };
    table.is_leaf = [](const NDArray& array) { return gradients().count(&array.impl()) > 0; };
    table.grad = [](const NDArray& array) { return gradients()[&array.impl()]; };
    table.set_grad = [](const NDArray& array, const NDArray& grad) { gradients()[&array.impl()] = grad; };
    table.backward = [](const NDArray&, const NDArray&, const BackwardOptions&) {};
  }
  ~HeldGradients() {
    gradients().clear();
    detail::hooks() = before_;
  }
  HeldGradients(const HeldGradients&) = delete;

  /// Returns the number of calls that would have been recorded so far.
  static int& recorded() {
    static int count = 0;
    return count;
  }
  /// Marks an array as the result of a recorded operation.
  static void mark_result(const NDArray& array) { array.impl().flags.fetch_or(detail::kRecorded); }

 private:
  static std::map<const detail::ArrayImpl*, NDArray>& gradients() {
    static std::map<const detail::ArrayImpl*, NDArray> held;
    return held;
  }
  const detail::Hooks before_;
};

}  // namespace mx::test
