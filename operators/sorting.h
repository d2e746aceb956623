// Operators that sort and search.
//
// The order is that of the numbers, NaN last, ascending or descending; -0 equals 0, and all NaNs equal each
// other. Equals keep their order (descending too), so there is one right answer. Indices are i64. All throw
// InvalidArgument for axes and shapes that do not fit.
#pragma once

#include <cstdint>
#include <utility>

#include "operators/operator.h"

namespace mx {

NDArray sort(const Arg& x, IntArg axis = -1, bool descending = false);
/// The indices along the axis that sort x.
NDArray argsort(const Arg& x, IntArg axis = -1, bool descending = false);

struct TopK {
  NDArray values;
  NDArray indices;
};
/// The k largest (NaNs only when there is nothing else) or smallest along the axis, in order, and where they
/// are.
TopK topk(const Arg& x, int64_t k, IntArg axis = -1, bool largest = true);

struct UniqueResult {
  NDArray values;   ///< (n,): the different elements, ascending; of equals with different bits the first
  NDArray first;    ///< (n,): where each comes first, in row-major order
  NDArray inverse;  ///< x's shape: which of the values each element is
  NDArray counts;   ///< (n,): how often each comes
};
/// As numpy.unique. Waits, because the size of the result depends on the values.
UniqueResult unique(const Arg& x);

/// Where each of `values` would have to be put into `sorted` (n,), ascending, so that it stays sorted: before
/// its equals or behind them; i64 of values' shape. As numpy.searchsorted.
NDArray searchsorted(const Arg& sorted, const NDArray& values, bool behind = false);

}  // namespace mx
