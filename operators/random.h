// Random arrays and dropout.
//
// A generator's numbers depend on its seed and on the order of the calls alone: not on threads, the schedule
// or the device. They come from a counter (operators/kernels/random.h): every call takes as many positions of
// the generator's stream as it makes elements, which is a tiny operation of its own, and the numbers are a
// function of these positions; so calls of one generator are filled in parallel. A segment of the engine that
// is replayed goes on in the stream, and one begun after seed() repeats.
//
// Every device has a generator, which begins at seed 0 and is used where none is named; inside an EngineScope
// each device has one of that scope's own. All throw InvalidArgument for parameters that make no sense; for
// values in arrays, out of waiting for the result, and the generator goes on working.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>

#include "operators/operator.h"

namespace mx {

/// A handle: copies share the state. Thread-safety: that of NDArray; with several threads calling one
/// generator, each call's numbers are right, and the order is that in which the calls came.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0, Context context = cpu());

  /// Begins anew, after what was called before.
  void seed(uint64_t seed, std::source_location where = std::source_location::current());
  Context context() const { return state_.context(); }
  /// i64 (2,): seed and position. For saving; may be assigned with copy_from.
  const NDArray& state() const { return state_; }

  /// Uniform in [0, 1); and in [low, high).
  NDArray rand(const Shape& shape, DType dtype = f32,
               std::source_location where = std::source_location::current());
  NDArray uniform(double low, double high, const Shape& shape, DType dtype = f32,
                  std::source_location where = std::source_location::current());
  /// Normal with mean 0 and deviation 1; and others.
  NDArray randn(const Shape& shape, DType dtype = f32,
                std::source_location where = std::source_location::current());
  NDArray normal(double mean, double deviation, const Shape& shape, DType dtype = f32,
                 std::source_location where = std::source_location::current());
  /// Whole numbers in [low, high), each as likely.
  NDArray randint(int64_t low, int64_t high, const Shape& shape, DType dtype = i64,
                  std::source_location where = std::source_location::current());
  /// 1 with that probability, else 0; and with one probability per element.
  NDArray bernoulli(double probability, const Shape& shape, DType dtype = f32,
                    std::source_location where = std::source_location::current());
  NDArray bernoulli(const Arg& probability, DType dtype = f32);
  /// With that rate: the mean is 1 / rate.
  NDArray exponential(double rate, const Shape& shape, DType dtype = f32,
                      std::source_location where = std::source_location::current());
  NDArray gamma(double alpha, double scale, const Shape& shape, DType dtype = f32,
                std::source_location where = std::source_location::current());
  NDArray poisson(double mean, const Shape& shape, DType dtype = i64,
                  std::source_location where = std::source_location::current());
  /// Beta with those two shape parameters, in [0, 1].
  NDArray beta(double alpha, double beta, const Shape& shape, DType dtype = f32,
               std::source_location where = std::source_location::current());
  /// How many of `trials` (up to 2^53) succeed, each with that probability.
  NDArray binomial(int64_t trials, double probability, const Shape& shape, DType dtype = i64,
                   std::source_location where = std::source_location::current());
  /// Numbers from 0 to n - 1, i64 of that shape: each as likely, or in proportion to the weights (n,).
  /// Without `replace` no number comes twice; InvalidArgument when there are fewer (of a weight above 0, for
  /// which it waits) than are asked for. As numpy.random.choice, but that weights need not add up to 1.
  NDArray choice(int64_t n, const Shape& shape, bool replace = true, const NDArray& weights = {},
                 std::source_location where = std::source_location::current());
  /// Entries of the first dimension of x, chosen so.
  NDArray choice(const Arg& x, const Shape& shape, bool replace = true, const NDArray& weights = {});
  /// 0 .. n - 1 in random order: i64 (n,).
  NDArray permutation(int64_t n, std::source_location where = std::source_location::current());
  /// i64 (.., samples): indices into the last dimension of `weights` (.., n), drawn with replacement in
  /// proportion to them, or with `logits` to their exponentials.
  NDArray categorical(const Arg& weights, int64_t samples, bool logits = false);
  /// The entries of the first dimension in random order; a copy, and in place.
  NDArray shuffle(const Arg& x);
  NDArray& shuffle_(NDArray& x, std::source_location where = std::source_location::current());

  /// Takes `count` positions of the stream: i64 (2,), the seed and the first of them. For other operators
  /// that need random numbers: give them this as an input.
  NDArray key(int64_t count, std::source_location where = std::source_location::current());

 private:
  NDArray state_;
};

/// That of the device, used by the functions below. The reference lives as long as the process (inside an
/// EngineScope: as long as the scope).
Generator& default_generator(Context context = cpu());
/// `generator`, or the device's where there is none.
inline Generator& generator_or_default(Generator* generator, Context context = cpu()) {
  return generator != nullptr ? *generator : default_generator(context);
}
/// Seeds the default generators of all devices, those that are not used yet too. Inside an EngineScope: the
/// scope's.
void manual_seed(uint64_t seed);

// Members of the default generator as functions. Those with an array argument use its device.
NDArray rand(const Shape& shape, DType dtype = f32, Context context = cpu(),
             std::source_location where = std::source_location::current());
NDArray uniform(double low, double high, const Shape& shape, DType dtype = f32, Context context = cpu(),
                std::source_location where = std::source_location::current());
NDArray randn(const Shape& shape, DType dtype = f32, Context context = cpu(),
              std::source_location where = std::source_location::current());
NDArray normal(double mean, double deviation, const Shape& shape, DType dtype = f32, Context context = cpu(),
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
/// On the weights' device, if there are weights.
NDArray choice(int64_t n, const Shape& shape, bool replace = true, const NDArray& weights = {},
               std::source_location where = std::source_location::current());
NDArray choice(const Arg& x, const Shape& shape, bool replace = true, const NDArray& weights = {});
NDArray permutation(int64_t n, Context context = cpu(),
                    std::source_location where = std::source_location::current());
NDArray categorical(const Arg& weights, int64_t samples, bool logits = false);
NDArray shuffle(const Arg& x);
NDArray& shuffle_(NDArray& x, std::source_location where = std::source_location::current());

struct Dropout {
  NDArray values;  ///< of x's type: 0 with probability p, else x / (1 - p)
  NDArray mask;    ///< bool of x's shape: which elements were kept
};
/// x floating, p from 0 to 1. A generator of x's device, or null for the default one.
Dropout dropout_with_mask(const Arg& x, RealArg p, Generator* generator = nullptr);
/// The values; without `train` x itself.
NDArray dropout(const Arg& x, RealArg p, bool train = true, Generator* generator = nullptr);

}  // namespace mx
