// Samplers: the order in which a loader takes the samples, and how it forms batches of them.
//
//   data::Loader balanced(set, {.batch_size = 64, .sampler = data::weighted_sampler(weights, 50000)});
//
//   data::Loader texts(set, {.batches = data::length_batches(lengths, {.max_elements = 4096})});
//
// The order of a sampler depends only on its arguments and the epoch, and is the same on every platform. A
// loader's shards and parts apply to any sampler: shard s of n takes places s, s + n, s + 2n, ... of the
// order, or of the list of batches, which wraps around at its end so that all shards have the same size.
//
// Immutable: any thread may use a sampler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/ndarray.h"

namespace mx::data {

/// The order of the samples in an epoch.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// The number of samples in each epoch; above 0.
  virtual int64_t size() const = 0;
  /// Returns size() sample numbers.
  virtual std::vector<int64_t> order(int64_t epoch) const = 0;
  /// Returns a number of samples that a data set must have at least for every order; 0 if that is not known.
  /// A loader refuses a smaller data set when it is made. It checks all sample numbers when it uses them.
  virtual int64_t samples_needed() const { return 0; }
};
using SamplerHandle = std::shared_ptr<const Sampler>;

/// The batches of an epoch.
class BatchSampler {
 public:
  virtual ~BatchSampler() = default;
  /// The number of batches in each epoch; above 0.
  virtual int64_t size() const = 0;
  /// Returns size() lists of sample numbers, none of them empty.
  virtual std::vector<std::vector<int64_t>> batches(int64_t epoch) const = 0;
  /// As Sampler::samples_needed().
  virtual int64_t samples_needed() const { return 0; }
};
using BatchSamplerHandle = std::shared_ptr<const BatchSampler>;

/// 0 .. n - 1 in order.
SamplerHandle sequential_sampler(int64_t n);
/// 0 .. n - 1 in a random order, another one in each epoch.
SamplerHandle random_sampler(int64_t n, int64_t seed = 0);
/// These samples, in a random order or in this order.
SamplerHandle subset_sampler(std::vector<int64_t> indices, bool shuffle = true, int64_t seed = 0);
/// `draws` samples at random: sample i with a probability proportional to weights[i]. With `replacement` the
/// draws are independent. Without it no sample comes twice in an epoch, and draws must be at most the number
/// of weights above 0. Source of the second: Efraimidis and Spirakis, "Weighted random sampling with a
/// reservoir", 2006. Throws InvalidArgument for weights that are negative, not finite, or all 0.
SamplerHandle weighted_sampler(std::vector<double> weights, int64_t draws, bool replacement = true,
                               int64_t seed = 0);

/// Cuts the order of a sampler into batches.
BatchSamplerHandle cut_batches(SamplerHandle sampler, int64_t batch_size, bool drop_last = false);

struct LengthOptions {
  IntArg batch_size = 0;    ///< the largest number of samples in a batch; 0: no limit
  IntArg max_elements = 0;  ///< the largest number of samples times the longest length; 0: no limit
  bool shuffle = false;     ///< mix samples of nearly the same length, and the order of the batches
  IntArg seed = 0;
};
/// Batches of samples of similar lengths, so that little is padded. Samples are sorted by length and cut into
/// batches within the limits, of which at least one must be set. A sample that is longer than max_elements is
/// a batch of its own. With `shuffle`, samples of equal length change places and batches come in random
/// order; the number of batches and the lengths in them are the same in every epoch.
BatchSamplerHandle length_batches(std::vector<int64_t> lengths, const LengthOptions& options);

}  // namespace mx::data
