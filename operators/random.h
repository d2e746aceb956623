// Random arrays and dropout.
//
// A generator's numbers depend only on its seed and on the order of the calls, not on threads, the schedule
// or the device. The generator is counter-based (operators/kernels/random.h): every call reserves as many
// positions of the generator's stream as it makes elements, and the numbers are a function of these
// positions. The reservation is a tiny operation of its own, so the arrays of several calls are filled in
// parallel. A replayed segment of the engine continues the stream; after the same seed() it repeats its
// numbers.
//
// Every device has a default generator with seed 0; inside an EngineScope each device has one that belongs to
// the scope. All functions throw InvalidArgument for invalid parameters. If values in arrays are invalid,
// waiting for the result throws, and the generator remains usable.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>

#include "operators/operator.h"

namespace mx {

/// A handle: copies share the state. Thread-safety: that of NDArray. If several threads call one generator,
/// each call gets positions of its own, in the order of the calls.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0, Context context = cpu());

  /// Restarts the stream with this seed. Calls that were made earlier are not affected.
  void seed(uint64_t seed, std::source_location where = std::source_location::current());
  Context context() const { return state_.context(); }
  /// Returns seed and position, i64 (2,), for saving. To restore them, assign with copy_from.
  const NDArray& state() const { return state_; }

  /// rand: uniform in [0, 1). uniform: in [low, high).
  NDArray rand(const Shape& shape, DType dtype = f32,
               std::source_location where = std::source_location::current());
  NDArray uniform(double low, double high, const Shape& shape, DType dtype = f32,
                  std::source_location where = std::source_location::current());
  /// randn: normal with mean 0 and standard deviation 1. normal: with the given ones.
  NDArray randn(const Shape& shape, DType dtype = f32,
                std::source_location where = std::source_location::current());
  NDArray normal(double mean, double stddev, const Shape& shape, DType dtype = f32,
                 std::source_location where = std::source_location::current());
  /// Integers in [low, high), uniformly distributed.
  NDArray randint(int64_t low, int64_t high, const Shape& shape, DType dtype = i64,
                  std::source_location where = std::source_location::current());
  /// 1 with that probability, else 0. The second form has one probability per element.
  NDArray bernoulli(double probability, const Shape& shape, DType dtype = f32,
                    std::source_location where = std::source_location::current());
  NDArray bernoulli(const Arg& probability, DType dtype = f32);
  /// Exponential with that rate; the mean is 1 / rate.
  NDArray exponential(double rate, const Shape& shape, DType dtype = f32,
                      std::source_location where = std::source_location::current());
  NDArray gamma(double alpha, double scale, const Shape& shape, DType dtype = f32,
                std::source_location where = std::source_location::current());
  NDArray poisson(double mean, const Shape& shape, DType dtype = i64,
                  std::source_location where = std::source_location::current());
  /// Beta with these two shape parameters, in [0, 1].
  NDArray beta(double alpha, double beta, const Shape& shape, DType dtype = f32,
               std::source_location where = std::source_location::current());
  /// The number of successes among `trials` (up to 2^53), each with that probability.
  NDArray binomial(int64_t trials, double probability, const Shape& shape, DType dtype = i64,
                   std::source_location where = std::source_location::current());
  /// Numbers from 0 to n - 1, i64 of that shape, with equal probabilities or in proportion to the weights
  /// (n,). Without `replace` all numbers are different; then it throws InvalidArgument if there are too few
  /// numbers, or too few with a weight above 0, and waits for the weights. As numpy.random.choice, but the
  /// weights need not add up to 1.
  NDArray choice(IntArg n, const Shape& shape, bool replace = true, const NDArray& weights = {},
                 std::source_location where = std::source_location::current());
  /// Entries of the first dimension of x, chosen in the same way.
  NDArray choice(const Arg& x, const Shape& shape, bool replace = true, const NDArray& weights = {});
  /// The numbers 0 .. n - 1 in random order, i64 (n,).
  NDArray permutation(IntArg n, std::source_location where = std::source_location::current());
  /// Indices into the last dimension of `weights` (.., n), i64 (.., samples), drawn with replacement in
  /// proportion to the weights. If `logits` is set, in proportion to their exponentials.
  NDArray categorical(const Arg& weights, IntArg samples, bool logits = false);
  /// shuffle: a copy with the entries of the first dimension in random order. shuffle_: in place.
  NDArray shuffle(const Arg& x);
  NDArray& shuffle_(NDArray& x, std::source_location where = std::source_location::current());

  /// Reserves `count` positions of the stream. Returns the seed and the first position, i64 (2,). Pass it as
  /// an input to operators that need random numbers.
  NDArray key(IntArg count, std::source_location where = std::source_location::current());

 private:
  NDArray state_;
};

/// Returns the default generator of the device, which the functions below use. The reference is valid as long
/// as the process, inside an EngineScope as long as the scope.
Generator& default_generator(Context context = cpu());
/// Returns `*generator`, or the device's default generator if `generator` is null.
inline Generator& generator_or_default(Generator* generator, Context context = cpu()) {
  return generator != nullptr ? *generator : default_generator(context);
}
/// Seeds the default generators of all devices, also of devices that are not used yet. Inside an EngineScope,
/// seeds those of the scope.
void manual_seed(uint64_t seed);

// The members of the default generator as functions. Functions with an array argument use its device.
NDArray rand(const Shape& shape, DType dtype = f32, Context context = cpu(),
             std::source_location where = std::source_location::current());
NDArray uniform(double low, double high, const Shape& shape, DType dtype = f32, Context context = cpu(),
                std::source_location where = std::source_location::current());
NDArray randn(const Shape& shape, DType dtype = f32, Context context = cpu(),
              std::source_location where = std::source_location::current());
NDArray normal(double mean, double stddev, const Shape& shape, DType dtype = f32, Context context = cpu(),
               std::source_location where = std::source_location::current());
NDArray randint(int64_t low, int64_t high, const Shape& shape, DType dtype = i64, Context context = cpu(),
                std::source_location where = std::source_location::current());
NDArray bernoulli(double probability, const Shape& shape, DType dtype = f32, Context context = cpu(),
                  std::source_location where = std::source_location::current());
NDArray bernoulli(const Arg& probability, DType dtype = f32);
NDArray exponential(double rate, const Shape& shape, DType dtype = f32, Context context = cpu(),
                    std::source_location where = std::source_location::current());
NDArray gamma(double alpha, double scale, const Shape& shape, DType dtype = f32, Context context = cpu(),
              std::source_location where = std::source_location::current());
NDArray poisson(double mean, const Shape& shape, DType dtype = i64, Context context = cpu(),
                std::source_location where = std::source_location::current());
NDArray beta(double alpha, double beta, const Shape& shape, DType dtype = f32, Context context = cpu(),
             std::source_location where = std::source_location::current());
NDArray binomial(int64_t trials, double probability, const Shape& shape, DType dtype = i64,
                 Context context = cpu(), std::source_location where = std::source_location::current());
/// Uses the weights' device if there are weights.
NDArray choice(IntArg n, const Shape& shape, bool replace = true, const NDArray& weights = {},
               std::source_location where = std::source_location::current());
NDArray choice(const Arg& x, const Shape& shape, bool replace = true, const NDArray& weights = {});
NDArray permutation(IntArg n, Context context = cpu(),
                    std::source_location where = std::source_location::current());
NDArray categorical(const Arg& weights, IntArg samples, bool logits = false);
NDArray shuffle(const Arg& x);
NDArray& shuffle_(NDArray& x, std::source_location where = std::source_location::current());

struct Dropout {
  NDArray values;  ///< of x's type: 0 with probability p, else x / (1 - p)
  NDArray mask;    ///< bool of x's shape: true for elements that were kept
};
/// Precondition: x is floating point, p is from 0 to 1, and the generator is on x's device, or null for the
/// default one.
Dropout dropout_with_mask(const Arg& x, RealArg p, Generator* generator = nullptr);
/// Returns the values only; x itself if `train` is false.
NDArray dropout(const Arg& x, RealArg p, bool train = true, Generator* generator = nullptr);

}  // namespace mx
