// Functions of two numbers based on the C library: for elements that the vector functions do not cover, and
// for instruction sets without vector functions.
#pragma once

#include <cmath>
#include <numbers>

namespace mx::kernels {

/// The remainder with the sign of b, as in Python; NaN for b = 0.
template <class T>
T floored_mod(T a, T b) {
  const T rest = std::fmod(a, b);
  if (rest == 0) return b == 0 ? rest : std::copysign(T{0}, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

/// The floor of a / b; an integer even if the division rounds.
template <class T>
T floored_quotient(T a, T b) {
  if (b == 0) return a / b;
  const T rest = std::fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T{0}, a / b);
  const T whole = std::floor(quotient);
  return quotient - whole > T{0.5} ? whole + 1 : whole;  // the division above may have rounded
}

/// log(exp(a) + exp(b)).
inline double log_add_exp(double a, double b) {
  if (a == b) return a + std::numbers::ln2;  // includes infinities
  const double high = std::fmax(a, b), low = std::fmin(a, b);
  return std::isnan(a) || std::isnan(b) ? a + b : high + std::log1p(std::exp(low - high));
}

}  // namespace mx::kernels
