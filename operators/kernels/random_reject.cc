// The distributions of random.h for which the number of random numbers is not known beforehand.
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "operators/kernels/log_gamma.h"
#include "operators/kernels/random.h"
#include "operators/kernels/random_draws.h"
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

}  // namespace

void random_gamma(const Tensor& target, double shape, double scale, uint64_t seed, uint64_t offset) {
  MX_CHECK(is_floating(target.dtype), InvalidArgument,
           "[random_gamma] expected a floating-point target, got ", target.dtype);
  MX_CHECK(std::isfinite(shape) && std::isfinite(scale) && shape > 0 && scale > 0, InvalidArgument,
           "[random_gamma] expected a finite shape and scale above 0, got ", shape, " and ", scale);
  fill_drawn(target, seed, offset,
             [&](ElementStream& stream) { return scale * detail::gamma_draw(stream, shape); });
}

void random_poisson(const Tensor& target, double mean, uint64_t seed, uint64_t offset) {
  MX_CHECK(target.dtype != DType::bool_, InvalidArgument,
           "[random_poisson] expected a target of a numeric type, got bool");
  MX_CHECK(std::isfinite(mean) && mean >= 0, InvalidArgument,
           "[random_poisson] expected a finite mean of 0 or more, got ", mean);
  fill_drawn(target, seed, offset, [&](ElementStream& stream) {
    return mean == 0 ? 0.0 : detail::poisson_draw(stream, mean, log_gamma);
  });
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
    const double count = p == 0 || n == 0 ? 0.0 : detail::binomial_draw(stream, n, p, log_gamma);
    return turned ? n - count : count;
  });
}

}  // namespace mx::kernels
