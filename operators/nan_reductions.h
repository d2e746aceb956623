// Reductions that leave NaN out, as NumPy's functions of the same names.
//
// Arrays of integers and bool have no NaN: of them each is the plain reduction. Axes, keep_dims and the types
// of results are those of reduce.h. Where all elements are NaN: nansum 0, nanprod 1; nanmax, nanmin, nanmean,
// nanvar and nanstd NaN; nanargmax and nanargmin 0 (NumPy throws there; that would have to wait for the
// values). Gradients are those of the plain reductions at the elements that count, and 0 at the others.
#pragma once

#include <concepts>

#include "operators/reduce.h"

namespace mx {

NDArray nansum(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanprod(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanmean(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
/// Throw InvalidArgument where there is nothing to choose from.
NDArray nanmax(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanmin(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanargmax(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
NDArray nanargmin(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

/// Divided by max(0, count - correction), where count is the number of elements that are not NaN. The default
/// is that of var() and of PyTorch; NumPy's ddof is 0.
NDArray nanvar(const Arg& x, const Axes& axes = {}, double correction = 1, bool keep_dims = false);
NDArray nanstd(const Arg& x, const Axes& axes = {}, double correction = 1, bool keep_dims = false);
/// keep_dims in the place of the correction.
template <std::same_as<bool> B>
NDArray nanvar(const Arg& x, const Axes& axes, B, bool keep_dims = false) = delete;
template <std::same_as<bool> B>
NDArray nanstd(const Arg& x, const Axes& axes, B, bool keep_dims = false) = delete;

}  // namespace mx
