// The logarithm of the absolute value of the gamma function, thread-safe.
#pragma once

#include <cmath>

namespace mx::kernels {

inline double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);  // lgamma writes a global variable, so it is not thread-safe
}

}  // namespace mx::kernels
