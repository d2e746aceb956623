// The logarithm of the gamma function's magnitude, for any thread.
#pragma once

#include <cmath>

namespace mx::kernels {

inline double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);  // lgamma writes a global
}

}  // namespace mx::kernels
