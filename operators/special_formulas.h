// The scalar formulas of operators/special.h, for the host and for GPUs. T is float or double.
#pragma once

#include <cmath>

namespace mx::formulas {

template <class T>
constexpr T logit(T x) {
  // Near 1/2 the quotient is near 1, and its logarithm loses digits; 2x - 1 is exact there.
  const T away = 2 * x - T{1};
  return std::fabs(away) < T{1} / 2 ? std::log1p(away / (T{1} - x)) : std::log(x / (T{1} - x));
}

template <class T>
constexpr T xlogy(T x, T y) {
  return x == 0 && y == y ? T{0} : x * std::log(y);
}

}  // namespace mx::formulas
