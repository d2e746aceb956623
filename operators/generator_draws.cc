// Generator::beta and choice, which combine other draws, and binomial.
#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/random.h"
#include "operators/random_records.h"
#include "operators/reduce.h"
#include "operators/sorting.h"

namespace mx {
namespace {

/// Returns logarithms of gamma variables. With a small shape parameter a the variable itself underflows, so
/// its logarithm is computed directly: gamma(a) is distributed as gamma(a + 1) * u^(1 / a) with u uniform,
/// and log(u) is minus an exponential variable.
NDArray log_of_gamma(Generator& generator, double shape_parameter, const Shape& shape,
                     std::source_location where) {
  const NDArray larger = generator.gamma(shape_parameter + 1, 1, shape, f64, where);
  const NDArray power = generator.exponential(1, shape, f64, where) / shape_parameter;
  return log({larger, where}) - power;
}

/// Returns `count` different numbers below n, drawn in proportion to the weights: the indices of the smallest
/// among n exponential variables with the weights as rates (Efraimidis and Spirakis, 2006).
NDArray weighted_without_replacement(Generator& generator, const NDArray& weights, int64_t n, int64_t count,
                                     std::source_location where) {
  const auto possible = count_nonzero({weights, where}).item<int64_t>();
  MX_CHECK(count <= possible, InvalidArgument, "[choice] expected to draw at most ", possible,
           " numbers without replacement, because only so many have a weight above 0, got ", count);
  const NDArray waiting = generator.exponential(1, {n}, f64, where) / weights.to(f64, where);
  return topk({waiting, where}, count, 0, false).indices;
}

}  // namespace

NDArray Generator::beta(double alpha, double beta, const Shape& shape, DType dtype,
                        std::source_location where) try {
  MX_CHECK(is_floating(dtype), InvalidArgument, "[beta] expected a floating type, got ", dtype);
  MX_CHECK(std::isfinite(alpha) && alpha > 0 && std::isfinite(beta) && beta > 0, InvalidArgument,
           "[beta] expected finite shape parameters above 0, got ", alpha, " and ", beta);
  const NDArray a = log_of_gamma(*this, alpha, shape, where), b = log_of_gamma(*this, beta, shape, where);
  return sigmoid({sub({a, where}, b), where}).to(dtype, where);  // a' / (a' + b')
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::binomial(int64_t trials, double probability, const Shape& shape, DType dtype,
                            std::source_location where) try {
  MX_CHECK(dtype != bool_, InvalidArgument, "[binomial] expected a numeric type, got bool");
  MX_CHECK(trials >= 0 && trials <= int64_t{1} << 53, InvalidArgument,
           "[binomial] expected 0 to 2^53 trials, got ", trials);
  MX_CHECK(probability >= 0 && probability <= 1, InvalidArgument,
           "[binomial] expected a probability from 0 to 1, got ", probability);
  const int64_t count = checked_numel(shape, size_of(dtype), "binomial");
  const detail::FillAttrs attrs{shape, dtype, static_cast<double>(trials), probability};
  return call(detail::kBinomial, attrs, {key(count, where), where});
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::choice(IntArg n, const Shape& shape, bool replace, const NDArray& weights,
                          std::source_location where) try {
  const int64_t count = checked_numel(shape, sizeof(int64_t), "choice");
  MX_CHECK(n >= 0 && (n > 0 || count == 0), InvalidArgument,
           "[choice] expected at least one number to choose from, got n = ", n, " for shape ", shape);
  MX_CHECK(!weights.defined() || (weights.shape() == Shape({n}) && is_floating(weights.dtype())),
           InvalidArgument, "[choice] expected floating-point weights of shape ", Shape({n}), ", got ",
           weights.defined() ? detail::concat(weights.dtype(), ' ', weights.shape()) : "none");
  MX_CHECK(replace || count <= n, InvalidArgument, "[choice] expected at most ", n,
           " numbers to be drawn without replacement, got shape ", shape);
  if (count == 0) return zeros(shape, i64, context(), where);
  if (replace && !weights.defined()) return randint(0, n, shape, i64, where);
  NDArray chosen;
  if (replace) {
    chosen = categorical({weights, where}, count);
  } else if (weights.defined()) {
    chosen = weighted_without_replacement(*this, weights, n, count, where);
  } else {
    chosen = permutation(n, where);
    if (count < n) chosen = chosen.slice(0, {0, count}).clone(where);  // frees the memory of all n
  }
  return chosen.reshape(shape, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::choice(const Arg& x, const Shape& shape, bool replace, const NDArray& weights) try {
  MX_CHECK(x.array.rank() >= 1, InvalidArgument, "[choice] expected an array of rank 1 or more, got rank 0");
  return take(x, choice(x.array.shape()[0], shape, replace, weights, x.where), 0);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray beta(double alpha, double beta, const Shape& shape, DType dtype, Context context,
             std::source_location where) {
  return default_generator(context).beta(alpha, beta, shape, dtype, where);
}
NDArray binomial(int64_t trials, double probability, const Shape& shape, DType dtype, Context context,
                 std::source_location where) {
  return default_generator(context).binomial(trials, probability, shape, dtype, where);
}
NDArray choice(IntArg n, const Shape& shape, bool replace, const NDArray& weights,
               std::source_location where) {
  const Context context = weights.defined() ? weights.context() : cpu();
  return default_generator(context).choice(n, shape, replace, weights, where);
}
NDArray choice(const Arg& x, const Shape& shape, bool replace, const NDArray& weights) {
  return default_generator(x.array.context()).choice(x, shape, replace, weights);
}

}  // namespace mx
