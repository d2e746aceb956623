#include "nn/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/operators.h"

namespace mx::nn {
namespace {

void check_sampling(const SamplingOptions& o) {
  MX_CHECK(o.temperature >= 0 && std::isfinite(o.temperature) && o.top_k >= 0 && o.top_p > 0 && o.top_p <= 1,
           InvalidArgument,
           "[sample_tokens] expected temperature >= 0, top_k >= 0 and 0 < top_p <= 1, got temperature = ",
           o.temperature, ", top_k = ", o.top_k, ", top_p = ", o.top_p);
}

int64_t most_likely(std::span<const double> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

/// Returns the tokens among which to draw, the most likely first. `weights` are not normalised.
std::vector<int64_t> candidates(std::span<const double> weights, const SamplingOptions& o) {
  const auto more_likely = [&](int64_t a, int64_t b) {
    const double x = weights[static_cast<size_t>(a)], y = weights[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + o.top_k - 1, order.end(), more_likely);
    order.resize(static_cast<size_t>(o.top_k));
  }
  if (o.top_p < 1) {
    std::sort(order.begin(), order.end(), more_likely);
    double total = 0, sum = 0;
    for (const int64_t token : order) total += weights[static_cast<size_t>(token)];
    size_t kept = 0;
    while (kept < order.size() && (kept == 0 || sum < o.top_p * total))
      sum += weights[static_cast<size_t>(order[kept++])];
    order.resize(kept);
  }
  // In the order of the numbers, so that options that keep every token draw the same tokens.
  std::sort(order.begin(), order.end());
  return order;
}

/// `uniform`: in [0, 1).
int64_t draw(std::span<const double> logits, const SamplingOptions& o, double uniform) {
  const double top = logits[static_cast<size_t>(most_likely(logits))];
  std::vector<double> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) weights[i] = std::exp((logits[i] - top) / o.temperature);
  const std::vector<int64_t> tokens = candidates(weights, o);
  double total = 0;
  for (const int64_t token : tokens) total += weights[static_cast<size_t>(token)];
  double left = uniform * total;
  int64_t last = tokens[0];
  for (const int64_t token : tokens) {
    const double weight = weights[static_cast<size_t>(token)];
    if (weight == 0) continue;
    last = token;
    left -= weight;
    if (left < 0) break;
  }
  return last;
}

}  // namespace

std::vector<int64_t> sample_tokens(const Arg& logits, const SamplingOptions& options,
                                   Generator* generator) try {
  check_sampling(options);
  const NDArray& x = logits.array;
  MX_CHECK(x.rank() == 2 && is_floating(x.dtype()) && (x.shape()[1] > 0 || x.shape()[0] == 0),
           InvalidArgument, "[sample_tokens] expected floating-point logits (rows, vocabulary), got ",
           x.dtype(), ' ', x.shape());
  const auto rows = static_cast<size_t>(x.shape()[0]), width = static_cast<size_t>(x.shape()[1]);
  const std::vector<double> uniform =
      generator_or_default(generator).rand({x.shape()[0]}, f64, logits.where).to_vector<double>();
  const std::vector<double> values = x.to_vector<double>();
  std::vector<int64_t> tokens;
  for (size_t row = 0; row < rows; ++row) {
    const std::span<const double> own(values.data() + row * width, width);
    double top = -INFINITY;
    for (const double value : own) {
      MX_CHECK(!std::isnan(value) && value != INFINITY, InvalidArgument,
               "[sample_tokens] expected logits below infinity, got ", value, " in row ", row);
      top = std::max(top, value);
    }
    MX_CHECK(top > -INFINITY, InvalidArgument,
             "[sample_tokens] expected a finite logit in every row, got none in row ", row);
    tokens.push_back(options.temperature == 0 ? most_likely(own) : draw(own, options, uniform[row]));
  }
  return tokens;
} catch (const Error&) {
  mx::detail::rethrow_at(logits.where);
}

}  // namespace mx::nn
