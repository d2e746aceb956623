// The order of the samples in an epoch, and the part of them that a shard takes.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/data/sample_random.h"

namespace mx::data {

/// Returns 0 .. n - 1 in random order (Fisher-Yates shuffle). The order is a function of the arguments, the
/// same on every platform. Throws InvalidArgument if n is too large for any memory.
std::vector<int64_t> random_order(int64_t n, int64_t seed, int64_t epoch,
                                  RandomPurpose purpose = RandomPurpose::order);

struct OrderOptions {
  int64_t samples = 0;  ///< at least 1
  bool shuffle = false;
  int64_t seed = 0;
  int64_t shard = 0, shards = 1;
};

/// The samples of one shard in one epoch. All shards have the same size and together cover every sample:
/// shard s takes places s, s + shards, s + 2 * shards, ... of the epoch's order. If the number of samples is
/// not divisible, the last places wrap around to the start of the order. So the k-th batches of all shards
/// together are the k-th batch of one loader without shards, whose batches are larger by the number of
/// shards.
class EpochOrder {
 public:
  EpochOrder(const OrderOptions& options, int64_t epoch);
  /// The shard of a given order. Precondition: `all` has OrderOptions::samples numbers.
  EpochOrder(const OrderOptions& options, const std::vector<int64_t>& all);

  static int64_t shard_size(const OrderOptions& options) {
    return 1 + (options.samples - 1) / options.shards;  // rounded up, without overflow for many shards
  }

  int64_t size() const { return shard_size(options_); }
  /// Returns the sample at a place of this shard. Precondition: 0 <= place < size().
  int64_t at(int64_t place) const {
    return order_.empty() ? place_in_order(place) : order_[static_cast<size_t>(place)];
  }

 private:
  /// Returns the place in the epoch's order. Before the wrap-around it is below samples + shards, which may
  /// exceed the range of int64_t; hence the unsigned numbers.
  int64_t place_in_order(int64_t place) const {
    const auto shards = static_cast<uint64_t>(options_.shards);
    const uint64_t at = static_cast<uint64_t>(options_.shard) + static_cast<uint64_t>(place) * shards;
    return static_cast<int64_t>(at % static_cast<uint64_t>(options_.samples));
  }

  void take_shard(const std::vector<int64_t>& all);

  OrderOptions options_;
  std::vector<int64_t> order_;  // the samples of this shard in order; empty if the order is ascending
};

}  // namespace mx::data
