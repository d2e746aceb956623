// Set operations on arrays, as NumPy's functions of the same names.
//
// Types are promoted as for arithmetic, except that an integer and a floating-point array are promoted to
// f64. Results have rank 1 and hold each number once, ascending. For isin, intersect1d and setdiff1d a NaN
// equals nothing; union1d returns NaN at most once. All but isin wait, because the size of the result depends
// on the values.
#pragma once

#include "operators/operator.h"

namespace mx {

/// Returns an array of bool of x's shape: true for elements of x that are in `test`, or, if `invert` is set,
/// for elements that are not. `test` may have any shape.
NDArray isin(const Arg& x, const NDArray& test, bool invert = false);
NDArray union1d(const Arg& a, const NDArray& b);      ///< in a or b
NDArray intersect1d(const Arg& a, const NDArray& b);  ///< in both
NDArray setdiff1d(const Arg& a, const NDArray& b);    ///< in a, and not in b; of a's type
NDArray setxor1d(const Arg& a, const NDArray& b);     ///< in exactly one of the two

}  // namespace mx
