// Reductions that ignore NaN, as NumPy's functions of the same names.
//
// Integers and bool have no NaN; for them each function is the plain reduction. Axes, keep_dims and the types
// of results are those of reduce.h. If all elements are NaN: nansum is 0, nanprod 1; nanmax, nanmin, nanmean,
// nanvar and nanstd are NaN; nanargmax and nanargmin are 0. (NumPy throws in the last case; that would
// require waiting for the values.) Gradients are those of the plain reductions at elements that are not NaN,
// and 0 at NaN.
#pragma once

#include <concepts>

#include "operators/reduce.h"

namespace mx {

NDArray nansum(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanprod(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanmean(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
/// These four throw InvalidArgument for a reduction of no elements.
NDArray nanmax(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanmin(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanargmax(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanargmin(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

/// The divisor is max(0, count - correction), where count is the number of elements that are not NaN. The
/// default is that of var() and of PyTorch; the default of NumPy's ddof is 0.
NDArray nanvar(const Arg& x, const Axes& axes = {}, double correction = 1, bool keep_dims = false);
NDArray nanstd(const Arg& x, const Axes& axes = {}, double correction = 1, bool keep_dims = false);
/// Deleted, because a bool in the place of the correction was meant as keep_dims.
template <std::same_as<bool> B>
NDArray nanvar(const Arg& x, const Axes& axes, B, bool keep_dims = false) = delete;
template <std::same_as<bool> B>
NDArray nanstd(const Arg& x, const Axes& axes, B, bool keep_dims = false) = delete;

}  // namespace mx
