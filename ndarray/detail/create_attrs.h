// The attributes of the operations that create arrays, for their kernels on every device. Internal.
#pragma once

#include "ndarray/scalar.h"

namespace mx::detail {

struct ConstantAttrs {
  Scalar value;
  template <class V>
  static void fields(V&& v) {
    v("value", &ConstantAttrs::value, "the value of all elements");
  }
};

/// Element i is start + i * step, computed in float64 or int64 and then converted. So rounding errors do not
/// accumulate.
struct RangeAttrs {
  bool floating = false;
  Scalar start, step;
  template <class V>
  static void fields(V&&) {}
};

}  // namespace mx::detail
