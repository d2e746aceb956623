// Sets: arrays as collections of different numbers, as NumPy's functions of the same names.
//
// Types are promoted as for arithmetic, but that integers and floating point meet in f64. Results are of rank
// 1, each number once, ascending. NaN is in no array (isin, intersect1d, setdiff1d), and union1d has it once.
// All but isin wait, because the size of the result depends on the values.
#pragma once

#include "operators/operator.h"

namespace mx {

/// Is each element of x among those of `test`, of any shape? bool of x's shape.
NDArray isin(const Arg& x, const NDArray& test, bool invert = false);
NDArray union1d(const Arg& a, const NDArray& b);      ///< in a or b
NDArray intersect1d(const Arg& a, const NDArray& b);  ///< in both
NDArray setdiff1d(const Arg& a, const NDArray& b);    ///< in a, and not in b; of a's type
NDArray setxor1d(const Arg& a, const NDArray& b);     ///< in exactly one of the two

}  // namespace mx
