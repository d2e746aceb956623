// Weighted means, covariance, correlation, ranges.
#pragma once

#include "operators/reduce.h"

namespace mx {

/// sum(x * weights) / sum(weights), as numpy.average; without weights the mean. The weights have x's shape,
/// or with one axis that axis's size. Integers are computed in f64 and give f32. Weights that add up to 0
/// give NaN or infinity (NumPy throws; that would have to wait for the values).
NDArray average(const Arg& x, const NDArray& weights = {}, const Axes& axes = {}, bool keep_dims = false);

/// max - min, in x's type; integers wrap.
NDArray ptp(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

struct CovOptions {
  double correction = 1;  ///< taken from the number of observations; numpy.cov's ddof
  NDArray fweights{};     ///< how often each observation was made: integers (n,)
  NDArray aweights{};     ///< how much each observation counts: (n,)
  bool rows = true;       ///< each row is a variable; else each column
};
/// The covariance of variables, as numpy.cov and torch.cov: x (variables, n) gives (variables, variables), a
/// vector of observations a number. Integers are computed in f64 and give f32. Fewer observations than the
/// correction give infinity or NaN.
NDArray cov(const Arg& x, const CovOptions& options = {});
/// The correlation coefficients, from -1 to 1; NaN for a variable that does not vary.
NDArray corrcoef(const Arg& x, bool rows = true);

}  // namespace mx
