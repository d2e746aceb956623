// Conversion to another type as an operator with a record, for graphs and for finding it by name. It gives
// what NDArray::to(dtype) gives.
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

/// Floating-point numbers to integers: towards 0, what does not fit becomes the nearest that does, and NaN 0;
/// integers to narrower ones: modulo their range; to bool: is it not 0? The gradient goes back in the type of
/// x. A new array, even of the same type.
NDArray cast(const Arg& x, DType dtype);

}  // namespace mx
