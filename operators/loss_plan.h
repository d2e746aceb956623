// What the kernels of the elementwise losses on a GPU are told, in place of the attributes of the records.
// Internal.
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/attrs.h"
#include "operators/kernels/elementwise_loss.h"

namespace mx::detail {

struct LossPlanAttrs {
  int64_t loss = 0;  ///< an ElementwiseLoss
  double parameter = 0;
  bool each = false;
  double divisor = 1;
  template <class V>
  static void fields(V&&) {}

  LossPlanAttrs() = default;
  LossPlanAttrs(kernels::ElementwiseLoss op, const kernels::ElementwiseLossOptions& options)
      : loss(static_cast<int64_t>(op)),
        parameter(options.parameter),
        each(options.each),
        divisor(options.divisor) {}
};

/// Returns what the kernels are told for a call of the operator `op` with x of this shape; for tests. Throws
/// InvalidArgument if `op` is not an elementwise loss or its gradient.
LossPlanAttrs loss_plan(const std::string& op, const Attrs& attrs, const Shape& x);

}  // namespace mx::detail
