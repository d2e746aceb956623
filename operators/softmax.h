// Softmax and its logarithm along an axis, and the operators of their gradients.
//
// The largest element of a row is subtracted first, so exp() does not overflow. A row that has a NaN or
// +infinity, or only -infinity, gives NaN. f16 and bf16 are computed in f32. All throw InvalidArgument for
// types that are not floating point and for an axis out of range (a rank of 0 has axis 0).
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

struct SoftmaxAttrs {
  int64_t axis = -1;
  template <class V>
  static void fields(V&& v) {
    v("axis", &SoftmaxAttrs::axis, "the dimension of the sums");
  }
};

NDArray softmax(const Arg& x, IntArg axis = -1);
NDArray log_softmax(const Arg& x, IntArg axis = -1);

/// Returns d(loss)/dx from dy = d(loss)/dy and y = softmax(x), which have the same shape.
NDArray softmax_backward(const Arg& dy, const NDArray& y, IntArg axis = -1);
/// The same for y = log_softmax(x).
NDArray log_softmax_backward(const Arg& dy, const NDArray& y, IntArg axis = -1);

}  // namespace mx
