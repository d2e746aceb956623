// digamma: reflection for negative x, recurrence up to 10, then the asymptotic series. Higher orders:
// (-1)^(n+1) n! zeta(n + 1, x), with the Hurwitz zeta function by Euler-Maclaurin summation.
// Source: NIST Digital Library of Mathematical Functions, 5.11.2, 5.15, 25.11. For the host and for GPUs; T
// is double.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace mx::formulas {

/// The Bernoulli number B(2 k + 2), for k < 10.
template <class T>
constexpr T bernoulli(int k) {
  constexpr T kNumbers[] = {1. / 6,       -1. / 30, 1. / 42,       -1. / 30,     5. / 66,
                            -691. / 2730, 7. / 6,   -3617. / 510., 43867. / 798, -174611. / 330};
  return kNumbers[k];
}

template <class T>
constexpr T digamma_of_positive(T x) {
  T shift = 0;
  for (; x < 10; ++x) shift -= 1 / x;
  const T inverse = 1 / (x * x);
  T power = inverse, series = 0;
  for (int k = 0; k < 8; ++k, power *= inverse) series -= bernoulli<T>(k) / (2 * (k + 1)) * power;
  return shift + (std::isinf(x) ? x : std::log(x) - 0.5 / x + series);
}

template <class T>
constexpr T digamma(T x) {
  if (x == 0) return std::copysign(std::numeric_limits<T>::infinity(), -x);
  if (x > 0) return digamma_of_positive(x);
  const T rest = x - std::trunc(x);  // exact, and the tangent has period 1
  return rest == 0
             ? std::numeric_limits<T>::quiet_NaN()
             : digamma_of_positive(1 - x) - std::numbers::pi_v<T> / std::tan(std::numbers::pi_v<T> * rest);
}

/// Returns unit^s times the sum over k >= 0 of (k + x)^-s, for x >= unit > 0 and s >= 2. Needs at most a few
/// dozen terms, however large s is.
template <class T>
constexpr T hurwitz_zeta(T s, T x, T unit) {
  if (std::isinf(x)) return 0;
  const auto power = [&](T k) { return std::exp(-s * std::log1p((x - unit + k) / unit)); };
  T sum = 0, k = 0;
  // The Euler-Maclaurin series converges if x is not much smaller than s, so the first terms are added
  // directly. They fall at least as fast as exp(-k s / (10 + s)), and their sum may already be complete.
  for (; x + k < 10 + s; ++k) {
    const T term = power(k);
    sum += term;
    if (term <= sum * 1e-18) return sum;
  }
  // The remaining terms: an integral, and its correction terms.
  const T last = power(k);
  x += k;
  sum += last * (x / (s - 1)) + last / 2;
  T factor = s * last / x;  // s (s + 1) .. (s + 2k) x^(-s - 2k - 1) / (2k + 2)!, without the 2
  for (int i = 0; i < 10; ++i) {
    const T m = 2 * i;
    const T term = factor * bernoulli<T>(i) / 2;
    sum += term;
    if (std::fabs(term) < std::fabs(sum) * 1e-17) break;
    factor *= (s + m + 1) / x * ((s + m + 2) / x) / ((m + 3) * (m + 4));
  }
  return sum;
}

/// Returns n! x^-(n + 1) times a factor of moderate size. The factorial and the power may both be out of
/// range.
template <class T>
constexpr T factorial_over_power(int64_t order, T x, T factor) {
  const T n = static_cast<T>(order);
  if (order <= 170) {
    const T half = std::pow(x, -(n + 1) / 2);
    return half * (std::tgamma(n + 1) * factor) * half;
  }
  // Stirling's formula. The result is in range only if x is near n / e, where the logarithms cancel.
  const T log = n * (std::log(n / x) - 1) + 0.5 * std::log(2 * std::numbers::pi_v<T> * n) - std::log(x) +
                (1. / 12 - (1. / 360 - 1. / (1260 * n * n)) / (n * n)) / n;
  return std::exp(log) * factor;
}

template <class T>
constexpr T polygamma(int64_t order, T x) {
  if (order == 0 || std::isnan(x)) return std::isnan(x) ? x : digamma(x);
  const bool odd = order % 2 == 1;
  if (x == -std::numeric_limits<T>::infinity() || (x <= 0 && x == std::floor(x)))
    return odd && x != -std::numeric_limits<T>::infinity() ? std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::quiet_NaN();
  const T s = static_cast<T>(order) + 1;
  if (x > 0) {
    if (std::isinf(x)) return odd ? 0.0 : -0.0;
    const T size = factorial_over_power(order, x, hurwitz_zeta(s, x, x));
    return odd ? size : -size;
  }
  // The sum over the terms below 0, reversed, is the difference of two such sums. All three are computed in
  // units of the largest term.
  const T above = x - std::floor(x), up = std::ceil(x) - x;  // distances to the integers on both sides
  const T unit = std::fmin(above, up);
  const T right = hurwitz_zeta(s, above, unit), left = hurwitz_zeta(s, up, unit);
  const T beyond = hurwitz_zeta(s, 1 - x, unit);
  // For even orders, halfway between integers, the first two cancel and only the third remains.
  const T sum = odd ? right + (left - beyond) : (right - left) + beyond;
  const T size = sum == 0 ? sum : factorial_over_power(order, unit, sum);
  return odd ? size : -size;
}

}  // namespace mx::formulas
