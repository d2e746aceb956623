// Weighted means, covariance, correlation, ranges.
#pragma once

#include "operators/reduce.h"

namespace mx {

/// sum(x * weights) / sum(weights), as numpy.average; without weights the mean. The weights have x's shape;
/// if one axis is given, they may also be a vector of that axis's size. Integers are computed in f64 and give
/// f32. Weights that add up to 0 give NaN or infinity. (NumPy throws; that would require waiting for the
/// values.)
NDArray average(const Arg& x, const NDArray& weights = {}, const Axes& axes = {}, bool keep_dims = false);

/// max - min, in x's type; integers wrap.
NDArray ptp(const Arg& x, const Axes& axes = {}, bool keep_dims = false);

struct CovOptions {
  double correction = 1;  ///< subtracted from the number of observations; numpy.cov's ddof
  NDArray fweights{};     ///< the number of occurrences of each observation: integers (n,)
  NDArray aweights{};     ///< the relative weight of each observation: (n,)
  bool rows = true;       ///< true: each row is a variable; false: each column
};
/// The covariance of variables, as numpy.cov and torch.cov: x (variables, n) gives (variables, variables); a
/// vector of observations gives a number. Integers are computed in f64 and give f32. Fewer observations than
/// the correction give infinity or NaN.
NDArray cov(const Arg& x, const CovOptions& options = {});
/// The correlation coefficients, from -1 to 1; NaN for a constant variable.
NDArray corrcoef(const Arg& x, bool rows = true);

}  // namespace mx
