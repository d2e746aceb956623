// The normal distribution's probability and its inverse, in f64. Internal.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>

namespace mx::nn::detail {

/// Returns P(X <= x), with a small relative error also where the probability is small.
inline double normal_probability(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

/// Returns the x with P(X <= x) = p; -infinity for 0 and infinity for 1. Algorithm: rational functions with a
/// relative error of about 1e-9, then one step of Halley's method. Source: P. J. Acklam, "An algorithm for
/// computing the inverse normal cumulative distribution function", 2003.
inline double normal_quantile(double p) {
  if (!(p > 0)) return -std::numeric_limits<double>::infinity();
  if (!(p < 1)) return std::numeric_limits<double>::infinity();
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,  -1.556989798598866e+02,
                          6.680131188771972e+01,  -1.328068155288572e+01, 1};
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                          3.754408661907416e+00, 1};
  const auto polynomial = [](const auto& coefficients, double x) {
    double value = 0;
    for (double coefficient : coefficients) value = value * x + coefficient;
    return value;
  };
  constexpr double kTail = 0.02425;
  double x = 0;
  if (p < kTail || p > 1 - kTail) {
    const double q = std::sqrt(-2 * std::log(p < kTail ? p : 1 - p));
    x = polynomial(c, q) / polynomial(d, q);
    if (p >= kTail) x = -x;
  } else {
    const double q = p - 0.5, r = q * q;
    x = q * polynomial(a, r) / polynomial(b, r);
  }
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  if (density == 0) return x;
  const double u = (normal_probability(x) - p) / density;
  return x - u / (1 + x * u / 2);
}

}  // namespace mx::nn::detail
