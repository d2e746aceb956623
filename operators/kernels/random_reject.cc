// The distributions of random.h for which the number of random numbers is not known beforehand.
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "operators/kernels/log_gamma.h"
#include "operators/kernels/random.h"
#include "operators/kernels/random_fill.h"

namespace mx::kernels {
namespace {

using detail::ElementStream;

/// target[i] = draw(the stream of element i).
template <class Draw>
void fill_drawn(const Tensor& target, uint64_t seed, uint64_t offset, const Draw& draw) {
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::fill_elements<T>(
        target, offset, [](T& element, double value, int64_t) { element = convert<T>(value); },
        [&] {
          return [&, values = std::array<double, detail::kRandomChunk>()](uint64_t first, int64_t n) mutable {
            for (int64_t i = 0; i < n; ++i) {
              ElementStream stream(seed, first + static_cast<uint64_t>(i), detail::kElementKind);
              values[static_cast<size_t>(i)] = draw(stream);
            }
            return static_cast<const double*>(values.data());
          };
        });
  });
}

double normal(ElementStream& stream) {
  const double radius = std::sqrt(-2 * std::log(stream.uniform()));
  return radius * std::cos(6.283185307179586 * stream.uniform());
}

double gamma(ElementStream& stream, double shape) {
  // For a shape below 1: the result for shape + 1, times a power of a uniform number.
  const double larger = shape < 1 ? shape + 1 : shape;
  const double d = larger - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(stream), u = stream.uniform();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v))
      return shape < 1 ? d * v * std::pow(stream.uniform(), 1 / shape) : d * v;
  }
}

double poisson(ElementStream& stream, double mean) {
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
double stirling_rest(double k) {
  if (k < 10)  // the series is not accurate enough there
    return log_gamma(k + 1) - (k + 0.5) * std::log(k + 1) + (k + 1) - 0.91893853320467274178;
  const double n = k + 1, square = n * n;
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / n;
}

/// Precondition: p <= 1/2.
double binomial(ElementStream& stream, double trials, double p) {
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
                        (k + 0.5) * std::log(ratio * (trials - k + 1) / (k + 1)) + stirling_rest(mode) +
                        stirling_rest(trials - mode) - stirling_rest(k) - stirling_rest(trials - k);
    if (v <= most) return k;
  }
}

}  // namespace

void random_gamma(const Tensor& target, double shape, double scale, uint64_t seed, uint64_t offset) {
  MX_CHECK(is_floating(target.dtype), InvalidArgument,
           "[random_gamma] expected a floating-point target, got ", target.dtype);
  MX_CHECK(std::isfinite(shape) && std::isfinite(scale) && shape > 0 && scale > 0, InvalidArgument,
           "[random_gamma] expected a finite shape and scale above 0, got ", shape, " and ", scale);
  fill_drawn(target, seed, offset, [&](ElementStream& stream) { return scale * gamma(stream, shape); });
}

void random_poisson(const Tensor& target, double mean, uint64_t seed, uint64_t offset) {
  MX_CHECK(target.dtype != DType::bool_, InvalidArgument,
           "[random_poisson] expected a target of a numeric type, got bool");
  MX_CHECK(std::isfinite(mean) && mean >= 0, InvalidArgument,
           "[random_poisson] expected a finite mean of 0 or more, got ", mean);
  fill_drawn(target, seed, offset,
             [&](ElementStream& stream) { return mean == 0 ? 0.0 : poisson(stream, mean); });
}

void random_binomial(const Tensor& target, int64_t trials, double probability, uint64_t seed,
                     uint64_t offset) {
  MX_CHECK(target.dtype != DType::bool_, InvalidArgument,
           "[random_binomial] expected a target of a numeric type, got bool");
  MX_CHECK(trials >= 0 && trials <= int64_t{1} << 53, InvalidArgument,
           "[random_binomial] expected 0 to 2^53 trials, got ", trials);
  MX_CHECK(probability >= 0 && probability <= 1, InvalidArgument,
           "[random_binomial] expected a probability from 0 to 1, got ", probability);
  const auto n = static_cast<double>(trials);
  const bool turned = probability > 0.5;
  const double p = turned ? 1 - probability : probability;
  fill_drawn(target, seed, offset, [&](ElementStream& stream) {
    const double count = p == 0 || n == 0 ? 0.0 : binomial(stream, n, p);
    return turned ? n - count : count;
  });
}

}  // namespace mx::kernels
