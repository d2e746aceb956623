// The attributes of where and clamp with numbers, for their kernels on every device. Internal.
#pragma once

#include <optional>

#include "ndarray/attrs.h"
#include "ndarray/scalar.h"

namespace mx::detail {

/// A number that is not set is an array among the inputs.
struct WhereNumbers {
  std::optional<Scalar> a, b;
  template <class V>
  static void fields(V&& v) {
    v("a", &WhereNumbers::a, "the number used where the condition is not zero; none: the elements of x");
    v("b", &WhereNumbers::b, "the number used elsewhere; none: the elements of x");
  }
};

/// A limit that is not set is the array `limit` if there is one, else there is no such limit.
struct ClampNumbers {
  std::optional<Scalar> low, high;
  template <class V>
  static void fields(V&& v) {
    v("low", &ClampNumbers::low, "the lower limit; none: `limit`");
    v("high", &ClampNumbers::high, "the upper limit; none: `limit`");
  }
};

}  // namespace mx::detail
