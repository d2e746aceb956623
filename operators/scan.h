// Running sums, products, maxima and minima along an axis, and linear recurrences.
//
// Element i of the result has the elements 0 to i in it; exclusive: those before i only, with the neutral
// element first; reverse: from the end. NaN carries on. cumsum and cumprod of integers and bool are i64,
// modulo 2^64; logcumsumexp of those is f32. All throw InvalidArgument for an axis out of range (a rank of 0
// has axis 0).
#pragma once

#include <cstdint>
#include <optional>

#include "operators/operator.h"

namespace mx {

struct ScanAttrs {
  int64_t axis = 0;
  bool exclusive = false;
  bool reverse = false;
  template <class V>
  static void fields(V&& v) {
    v("axis", &ScanAttrs::axis, "the dimension along which it runs");
    v("exclusive", &ScanAttrs::exclusive, "without the element itself");
    v("reverse", &ScanAttrs::reverse, "from the end to the front");
  }
};

struct RecurrenceAttrs {
  int64_t axis = 0;
  bool reverse = false;
  template <class V>
  static void fields(V&& v) {
    v("axis", &RecurrenceAttrs::axis, "the dimension along which it runs");
    v("reverse", &RecurrenceAttrs::reverse, "from the end to the front");
  }
};

/// With a dtype (any but bool): of the elements in that type, and kept in it.
NDArray cumsum(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false,
               std::optional<DType> dtype = {});
NDArray cumprod(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false,
                std::optional<DType> dtype = {});
/// Exclusive, it begins with the smallest value of the type; cummin with the largest.
NDArray cummax(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false);
NDArray cummin(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false);
NDArray logcumsumexp(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false);

/// y[i] = a[i] * y[i - 1] + b[i] along an axis, from y[0] = b[0]; reverse: y[i] = a[i] * y[i + 1] + b[i],
/// from the end. One shape, floating-point types.
NDArray linear_recurrence(const Arg& a, const NDArray& b, IntArg axis = 0, bool reverse = false);

}  // namespace mx
