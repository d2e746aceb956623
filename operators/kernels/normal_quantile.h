// The quantile function of the normal distribution, and the inverse of erf from it.
//
// Source: M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied
// Statistics 37 (1988), PPND16: rational approximations with a relative error of about 1e-16.
#pragma once

namespace mx::kernels {

/// Returns the inverse of erf: infinite at -1 and 1, NaN beyond them and for NaN.
double erf_inverse(double x);

}  // namespace mx::kernels
