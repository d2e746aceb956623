// Running sums, products, maxima and minima along an axis, and linear recurrences.
//
// Element i of the result combines the elements 0 to i. If exclusive, it combines only the elements before i,
// and the first result is the neutral element. If reverse, the scan runs from the end. After a NaN all
// results are NaN. cumsum and cumprod of integers and bool are i64, modulo 2^64; logcumsumexp of those is
// f32. All throw InvalidArgument for an axis out of range (a rank of 0 has axis 0).
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
    v("axis", &ScanAttrs::axis, "the dimension of the scan");
    v("exclusive", &ScanAttrs::exclusive, "true: each result leaves out the element at its own position");
    v("reverse", &ScanAttrs::reverse, "true: the scan runs from the end to the start");
  }
};

struct RecurrenceAttrs {
  int64_t axis = 0;
  bool reverse = false;
  template <class V>
  static void fields(V&& v) {
    v("axis", &RecurrenceAttrs::axis, "the dimension of the scan");
    v("reverse", &RecurrenceAttrs::reverse, "true: the scan runs from the end to the start");
  }
};

/// `dtype`: any type but bool. Elements are converted to it, and the result has it.
NDArray cumsum(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false,
               std::optional<DType> dtype = {});
NDArray cumprod(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false,
                std::optional<DType> dtype = {});
/// If exclusive, cummax begins with the smallest value of the type, and cummin with the largest.
NDArray cummax(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false);
NDArray cummin(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false);
NDArray logcumsumexp(const Arg& x, IntArg axis = 0, bool exclusive = false, bool reverse = false);

/// y[i] = a[i] * y[i - 1] + b[i] along an axis, from y[0] = b[0]. If reverse, y[i] = a[i] * y[i + 1] + b[i],
/// from the end. a and b have the same shape and floating-point types.
NDArray linear_recurrence(const Arg& a, const NDArray& b, IntArg axis = 0, bool reverse = false);

}  // namespace mx
