// Random numbers on the CPU, as a function of a seed and a position.
//
// Element i, in row-major order whatever the strides, depends only on (seed, offset + i) and the
// distribution's parameters. It depends neither on threads, nor on how a fill is split, nor on neighbouring
// elements: a fill of n elements at `offset` followed by one at offset + n gives the values of a single fill.
// The owner of a generator adds the number of elements to its offset after each call. Streams of different
// distributions at the same positions are independent only if they use different numbers of bits per element.
//
// Generator: Philox4x32-10 (philox.h). Every run on one machine gives the same bits; on processors with other
// vector instructions, normal and exponential may differ in the last place. All functions throw
// InvalidArgument for parameters and dtypes out of range. Large fills run on several threads. Thread-safety:
// any thread may call.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Uniform in [low, high), never high; floating dtypes. 53 random bits for f64, 24 for the others.
void random_uniform(const Tensor& target, double low, double high, uint64_t seed, uint64_t offset);

/// The first and the last number of a type in [low, high), so that rounding does not leave the interval.
struct UniformLimits {
  double first, last;
};
/// Throws InvalidArgument for limits that are not finite, and if no number of the type lies between them.
UniformLimits uniform_limits(DType dtype, double low, double high);

/// Normal, by Box and Muller; floating dtypes. Computed in double for f64, in float otherwise.
void random_normal(const Tensor& target, double mean, double deviation, uint64_t seed, uint64_t offset);

/// Exponential with the given rate (mean 1 / rate); floating dtypes.
void random_exponential(const Tensor& target, double rate, uint64_t seed, uint64_t offset);

/// 1 with the given probability, else 0; any dtype. The probability is exact to 2^-53.
void random_bernoulli(const Tensor& target, double probability, uint64_t seed, uint64_t offset);
/// The same with one probability per element: floating, of target's shape, each from 0 to 1.
void random_bernoulli(const Tensor& target, const Tensor& probability, uint64_t seed, uint64_t offset);

/// Integers in [low, high), all exactly equally likely (Lemire, "Fast random integer generation in an
/// interval", 2019); integral dtypes, which must be able to hold low and high - 1.
void random_integers(const Tensor& target, int64_t low, int64_t high, uint64_t seed, uint64_t offset);

/// A permutation of 0 .. n - 1 into a target (n,) of i32 or i64 (Fisher and Yates, on one thread). Uses n
/// positions.
void random_permutation(const Tensor& target, uint64_t seed, uint64_t offset);

/// target (.., samples) of i32 or i64: indices drawn with replacement, in proportion to the weights (.., n).
/// The weights are floating, finite, not negative and not all 0. With `logits` the argument holds the
/// logarithms of the weights, which may be -inf. Uses one position per element of target.
void random_categorical(const Tensor& target, const Tensor& weights, bool logits, uint64_t seed,
                        uint64_t offset);

/// Gamma with the given shape parameter and scale (Marsaglia and Tsang, 2000); floating dtypes.
void random_gamma(const Tensor& target, double shape, double scale, uint64_t seed, uint64_t offset);

/// Poisson with the given mean (multiplication below 10, else Hoermann's PTRS, 1993); any dtype but bool.
/// Values beyond the range of the dtype become its largest value.
void random_poisson(const Tensor& target, double mean, uint64_t seed, uint64_t offset);

/// Binomial: the number of successes in `trials` (0 to 2^53) trials with the given probability. If fewer than
/// 10 successes are expected, it adds up the gaps between them; otherwise it uses Hoermann's BTRS, 1993. Any
/// dtype but bool. Values beyond the range of the dtype become its largest value.
void random_binomial(const Tensor& target, int64_t trials, double probability, uint64_t seed,
                     uint64_t offset);

}  // namespace mx::kernels
