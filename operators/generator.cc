#include <cmath>
#include <map>
#include <mutex>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/indexing.h"
#include "operators/random.h"
#include "operators/random_records.h"

namespace mx {

using detail::CategoricalAttrs;
using detail::DropoutAttrs;
using detail::FillAttrs;
using detail::IntegerAttrs;
using detail::KeyAttrs;
using detail::TypeAttrs;

namespace {

NDArray state_of(uint64_t seed) { return array<int64_t>({static_cast<int64_t>(seed), 0}); }

/// `name`: of the function that the program called, for errors.
NDArray fill(Generator& generator, const Operator& op, const char* name, double a, double b,
             const Shape& shape, DType dtype, std::source_location where) {
  const int64_t count = checked_numel(shape, size_of(dtype), name);
  return call(op, FillAttrs{shape, dtype, a, b}, {generator.key(count, where), where});
}

void check_floating(const char* op, DType dtype) {
  MX_CHECK(is_floating(dtype), InvalidArgument, "[", op, "] expected a floating type, got ", dtype);
}

void check_positive(const char* op, const char* what, double value) {
  MX_CHECK(std::isfinite(value) && value > 0, InvalidArgument, "[", op, "] expected a finite ", what,
           " above 0, got ", value);
}

/// The default generators of one engine. The mutex guards the other members.
struct Defaults {
  std::mutex mutex;
  uint64_t seed = 0;
  std::map<std::pair<int, int>, Generator> by_device;

  Generator& of(Context context) {
    std::lock_guard lock(mutex);
    const std::pair<int, int> key(static_cast<int>(context.kind), static_cast<int>(context.id));
    const auto found = by_device.find(key);
    return found != by_device.end() ? found->second
                                    : by_device.emplace(key, Generator(seed, context)).first->second;
  }
  void seed_all(uint64_t value) {
    std::lock_guard lock(mutex);
    seed = value;
    for (auto& entry : by_device) entry.second.seed(value);
  }
};

Defaults& defaults() {
  if (std::shared_ptr<void>* kept = EngineScope::kept()) {
    if (*kept == nullptr) *kept = std::make_shared<Defaults>();
    return *static_cast<Defaults*>(kept->get());
  }
  static auto* const made = new Defaults;  // never destroyed: static destructors may draw numbers
  return *made;
}

}  // namespace

Generator::Generator(uint64_t seed, Context context) : state_(state_of(seed).to(context)) {}

void Generator::seed(uint64_t seed, std::source_location where) { state_.copy_from(state_of(seed), where); }

NDArray Generator::key(IntArg count, std::source_location where) {
  return call(detail::kRandomKey, KeyAttrs{count}, {state_, where});
}

NDArray Generator::rand(const Shape& shape, DType dtype, std::source_location where) try {
  check_floating("rand", dtype);
  return fill(*this, detail::kUniform, "rand", 0, 1, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::uniform(double low, double high, const Shape& shape, DType dtype,
                           std::source_location where) try {
  check_floating("uniform", dtype);
  MX_CHECK(std::isfinite(low) && std::isfinite(high) && low < high, InvalidArgument,
           "[uniform] expected finite limits, low < high, got ", low, " and ", high);
  return fill(*this, detail::kUniform, "uniform", low, high, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::randn(const Shape& shape, DType dtype, std::source_location where) try {
  check_floating("randn", dtype);
  return fill(*this, detail::kNormal, "randn", 0, 1, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::normal(double mean, double deviation, const Shape& shape, DType dtype,
                          std::source_location where) try {
  check_floating("normal", dtype);
  MX_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0, InvalidArgument,
           "[normal] expected a finite mean and a deviation of 0 or more, got ", mean, " and ", deviation);
  return fill(*this, detail::kNormal, "normal", mean, deviation, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::randint(int64_t low, int64_t high, const Shape& shape, DType dtype,
                           std::source_location where) try {
  const int64_t count = checked_numel(shape, size_of(dtype), "randint");
  MX_CHECK(low < high, InvalidArgument, "[randint] expected low < high, got ", low, " and ", high);
  return call(detail::kRandint, IntegerAttrs{shape, dtype, low, high}, {key(count, where), where});
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::bernoulli(double probability, const Shape& shape, DType dtype,
                             std::source_location where) try {
  MX_CHECK(probability >= 0 && probability <= 1, InvalidArgument,
           "[bernoulli] expected a probability from 0 to 1, got ", probability);
  return fill(*this, detail::kBernoulli, "bernoulli", probability, 0, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::bernoulli(const Arg& probability, DType dtype) {
  return call(detail::kBernoulliOf, TypeAttrs{dtype}, probability,
              key(probability.array.numel(), probability.where));
}

NDArray Generator::exponential(double rate, const Shape& shape, DType dtype, std::source_location where) try {
  check_floating("exponential", dtype);
  check_positive("exponential", "rate", rate);
  return fill(*this, detail::kExponential, "exponential", rate, 0, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::gamma(double alpha, double scale, const Shape& shape, DType dtype,
                         std::source_location where) try {
  check_floating("gamma", dtype);
  check_positive("gamma", "shape parameter", alpha);
  check_positive("gamma", "scale", scale);
  return fill(*this, detail::kGamma, "gamma", alpha, scale, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::poisson(double mean, const Shape& shape, DType dtype, std::source_location where) try {
  MX_CHECK(dtype != bool_, InvalidArgument, "[poisson] expected a numeric type, got bool");
  MX_CHECK(std::isfinite(mean) && mean >= 0, InvalidArgument,
           "[poisson] expected a finite mean of 0 or more, got ", mean);
  return fill(*this, detail::kPoisson, "poisson", mean, 0, shape, dtype, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::permutation(IntArg n, std::source_location where) try {
  checked_numel({n}, sizeof(int64_t), "permutation");
  return call(detail::kPermutation, KeyAttrs{n}, {key(n, where), where});
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Generator::categorical(const Arg& weights, IntArg samples, bool logits) try {
  Shape rows = weights.array.shape();
  MX_CHECK(rows.rank() >= 1 && samples >= 0, InvalidArgument,
           "[categorical] expected weights (.., n) and samples of 0 or more, got shape ", rows, " and ",
           samples);
  rows[rows.rank() - 1] = samples;
  const int64_t count = checked_numel(rows, sizeof(int64_t), "categorical");
  return call(detail::kCategorical, CategoricalAttrs{samples, logits}, weights, key(count, weights.where));
} catch (const Error&) {
  detail::rethrow_at(weights.where);
}

NDArray Generator::shuffle(const Arg& x) try {
  MX_CHECK(x.array.rank() >= 1, InvalidArgument, "[shuffle] expected an array of rank 1 or more, got rank 0");
  return take(x, permutation(x.array.shape()[0], x.where), 0);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray& Generator::shuffle_(NDArray& x, std::source_location where) {
  return x.copy_from(shuffle({x, where}), where);
}

Generator& default_generator(Context context) { return defaults().of(context); }

void manual_seed(uint64_t seed) { defaults().seed_all(seed); }

NDArray rand(const Shape& shape, DType dtype, Context context, std::source_location where) {
  return default_generator(context).rand(shape, dtype, where);
}
NDArray uniform(double low, double high, const Shape& shape, DType dtype, Context context,
                std::source_location where) {
  return default_generator(context).uniform(low, high, shape, dtype, where);
}
NDArray randn(const Shape& shape, DType dtype, Context context, std::source_location where) {
  return default_generator(context).randn(shape, dtype, where);
}
NDArray normal(double mean, double deviation, const Shape& shape, DType dtype, Context context,
               std::source_location where) {
  return default_generator(context).normal(mean, deviation, shape, dtype, where);
}
NDArray randint(int64_t low, int64_t high, const Shape& shape, DType dtype, Context context,
                std::source_location where) {
  return default_generator(context).randint(low, high, shape, dtype, where);
}
NDArray bernoulli(double probability, const Shape& shape, DType dtype, Context context,
                  std::source_location where) {
  return default_generator(context).bernoulli(probability, shape, dtype, where);
}
NDArray bernoulli(const Arg& probability, DType dtype) {
  return default_generator(probability.array.context()).bernoulli(probability, dtype);
}
NDArray exponential(double rate, const Shape& shape, DType dtype, Context context,
                    std::source_location where) {
  return default_generator(context).exponential(rate, shape, dtype, where);
}
NDArray gamma(double alpha, double scale, const Shape& shape, DType dtype, Context context,
              std::source_location where) {
  return default_generator(context).gamma(alpha, scale, shape, dtype, where);
}
NDArray poisson(double mean, const Shape& shape, DType dtype, Context context, std::source_location where) {
  return default_generator(context).poisson(mean, shape, dtype, where);
}
NDArray permutation(IntArg n, Context context, std::source_location where) {
  return default_generator(context).permutation(n, where);
}
NDArray categorical(const Arg& weights, IntArg samples, bool logits) {
  return default_generator(weights.array.context()).categorical(weights, samples, logits);
}
NDArray shuffle(const Arg& x) { return default_generator(x.array.context()).shuffle(x); }
NDArray& shuffle_(NDArray& x, std::source_location where) {
  return default_generator(x.context()).shuffle_(x, where);
}

Dropout dropout_with_mask(const Arg& x, RealArg p, Generator* generator) {
  Generator& used = generator_or_default(generator, x.array.context());
  const NDArray inputs[] = {x.array, used.key(x.array.numel(), x.where)};
  std::vector<NDArray> both = call(detail::kDropout, DropoutAttrs{p}, inputs, x.where);
  return {std::move(both[0]), std::move(both[1])};
}

NDArray dropout(const Arg& x, RealArg p, bool train, Generator* generator) try {
  MX_CHECK(p >= 0 && p <= 1, InvalidArgument, "[dropout] expected a probability from 0 to 1, got ", p);
  return train ? dropout_with_mask(x, p, generator).values : x.array;
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
