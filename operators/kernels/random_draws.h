// One number of a distribution from an unlimited stream of random numbers, for the CPU and for GPUs. Sources:
// random.h.
#pragma once

#include <cmath>

namespace mx::kernels::detail {

template <class Stream>
constexpr double normal_draw(Stream& stream) {
  const double radius = std::sqrt(-2 * std::log(stream.uniform()));
  return radius * std::cos(6.283185307179586 * stream.uniform());
}

template <class Stream>
constexpr double gamma_draw(Stream& stream, double shape) {
  // For a shape below 1: the result for shape + 1, times a power of a uniform number.
  const double larger = shape < 1 ? shape + 1 : shape;
  const double d = larger - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal_draw(stream), u = stream.uniform();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v))
      return shape < 1 ? d * v * std::pow(stream.uniform(), 1 / shape) : d * v;
  }
}

/// log_gamma(x) is the logarithm of the gamma function.
template <class Stream, class LogGamma>
constexpr double poisson_draw(Stream& stream, double mean, const LogGamma& log_gamma) {
  if (mean < 10) {
    const double limit = std::exp(-mean);
    double count = 0;
    for (double product = stream.uniform(); product > limit; product *= stream.uniform()) ++count;
    return count;
  }
  const double b = 0.931 + 2.53 * std::sqrt(mean), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), accept = 0.9277 - 3.6224 / (b - 2);
  const double log_mean = std::log(mean);
  for (;;) {
    const double u = stream.uniform() - 0.5, v = stream.uniform();
    const double distance = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / distance + b) * u + mean + 0.43);
    if (distance >= 0.07 && v <= accept) return k;
    if (k < 0 || (distance < 0.013 && v > distance)) continue;
    if (std::log(v * inverse_alpha / (a / (distance * distance) + b)) <=
        k * log_mean - mean - log_gamma(k + 1))
      return k;
  }
}

/// Returns log(k!) minus Stirling's approximation: log_gamma(k + 1) - (k + 1/2) log(k + 1) + (k + 1) - log(2
/// pi) / 2.
template <class LogGamma>
constexpr double stirling_rest(double k, const LogGamma& log_gamma) {
  if (k < 10)  // the series is not accurate enough there
    return log_gamma(k + 1) - (k + 0.5) * std::log(k + 1) + (k + 1) - 0.91893853320467274178;
  const double n = k + 1, square = n * n;
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / n;
}

/// Precondition: p <= 1/2.
template <class Stream, class LogGamma>
constexpr double binomial_draw(Stream& stream, double trials, double p, const LogGamma& log_gamma) {
  if (trials * p < 10) {
    // The gaps between successes are geometric.
    const double log_failure = std::log1p(-p);
    double used = 0, count = 0;
    for (;;) {
      used += std::floor(std::log(stream.uniform()) / log_failure) + 1;
      if (used > trials) return count;
      ++count;
    }
  }
  const double deviation = std::sqrt(trials * p * (1 - p));
  const double b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double centre = trials * p + 0.5, accept = 0.92 - 4.2 / b;
  const double ratio = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = std::floor((trials + 1) * p);
  for (;;) {
    const double u = stream.uniform() - 0.5;
    double v = stream.uniform();
    const double distance = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / distance + b) * u + centre);
    if (distance >= 0.07 && v <= accept) return k;
    if (k < 0 || k > trials) continue;
    v = std::log(v * alpha / (a / (distance * distance) + b));
    const double most = (mode + 0.5) * std::log((mode + 1) / (ratio * (trials - mode + 1))) +
                        (trials + 1) * std::log((trials - mode + 1) / (trials - k + 1)) +
                        (k + 0.5) * std::log(ratio * (trials - k + 1) / (k + 1)) +
                        stirling_rest(mode, log_gamma) + stirling_rest(trials - mode, log_gamma) -
                        stirling_rest(k, log_gamma) - stirling_rest(trials - k, log_gamma);
    if (v <= most) return k;
  }
}

}  // namespace mx::kernels::detail
