// Operators that sort and search.
//
// NaN is last, ascending and descending. -0 equals 0, and all NaNs are equal. Sorting is stable, also if
// descending, so the result is unique. Indices are i64. sort, argsort and topk take an array of rank 0 as one
// element along axis 0, as in PyTorch. All throw InvalidArgument for axes and shapes that do not fit.
#pragma once

#include <cstdint>
#include <utility>

#include "operators/operator.h"

namespace mx {

NDArray sort(const Arg& x, IntArg axis = -1, bool descending = false);
/// Returns the indices along the axis that sort x.
NDArray argsort(const Arg& x, IntArg axis = -1, bool descending = false);

/// Returns the indices along the axis that divide x at the element that sorting would put at place `kth`, as
/// numpy.argpartition: first those smaller than it, then those equal to it, then the larger ones. Within each
/// part the elements keep their order. Takes a time proportional to the number of elements. A negative kth
/// counts from the end.
NDArray argpartition(const Arg& x, IntArg kth, IntArg axis = -1);
/// Returns the indices along the last axis of the elements that sorting would put at `places` (i64; x's shape
/// with any size of the last dimension): take_along_axis(argsort(x), places, -1) without sorting. For few
/// places the time is proportional to the number of elements.
NDArray argselect(const Arg& x, const NDArray& places);

struct TopK {
  NDArray values;
  NDArray indices;
};
/// Returns the k largest or smallest elements along the axis, in order, and their indices. NaNs are included
/// only if there are fewer than k other elements.
TopK topk(const Arg& x, IntArg k, IntArg axis = -1, bool largest = true);

struct UniqueResult {
  NDArray values;   ///< (n,): the distinct elements, ascending; of equal ones with different bits the first
  NDArray first;    ///< (n,): the index of the first occurrence of each value, in row-major order
  NDArray inverse;  ///< x's shape: for each element the index into `values`
  NDArray counts;   ///< (n,): the number of occurrences of each value
};
/// Returns the distinct elements, as numpy.unique. Waits, because the size of the result depends on the
/// values.
UniqueResult unique(const Arg& x);

/// Returns the positions at which `values` can be inserted into `sorted` (n,), ascending, so that it stays
/// sorted: before equal elements, or after them if `behind` is set. i64 of values' shape, as
/// numpy.searchsorted.
NDArray searchsorted(const Arg& sorted, const NDArray& values, bool behind = false);

}  // namespace mx
