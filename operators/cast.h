// Conversion to another type as an operator with a record, so that graphs can hold it and it can be found by
// name. The values are those of NDArray::to(dtype).
#pragma once

#include "operators/operator.h"

namespace mx {

struct CastAttrs {
  DType dtype = f32;
  template <class V>
  static void fields(V&& v) {
    v("dtype", &CastAttrs::dtype, "the type of the result");
  }
};

/// Converts x to `dtype`; returns a new array, even if the type is the same.
/// Floating point to integers: rounds towards 0, saturates at the limits of the type, and NaN becomes 0.
/// Integers to narrower integers: wraps. To bool: true if not 0. The gradient has the type of x.
NDArray cast(const Arg& x, DType dtype);

}  // namespace mx
