// The attributes of an elementwise operator with a number as an operand: the number is an attribute of the
// call, not an array. Internal.
#pragma once

#include "ndarray/scalar.h"
#include "operators/operator.h"

namespace mx {

/// The attributes of a binary operator's form that takes an array and a number.
struct NumberAttrs {
  Scalar number;
  bool left = false;
  template <class V>
  static void fields(V&& v) {
    v("number", &NumberAttrs::number, "the operand that is a number");
    v("left", &NumberAttrs::left, "true: the number is the first operand; false: the second");
  }
};

}  // namespace mx
