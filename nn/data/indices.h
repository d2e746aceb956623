// Indices: the samples of one batch, as a data set gets them.
//
// Immutable. Copies share the numbers. Any thread may use them.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::data {

class Indices {
 public:
  /// `seed` and `epoch` are those of the loader, for data sets that change samples at random.
  Indices(std::vector<int64_t> values, int64_t seed = 0, int64_t epoch = 0,
          std::source_location where = std::source_location::current())
      : array_(mx::array(values)),
        values_(std::make_shared<const std::vector<int64_t>>(std::move(values))),
        seed_(seed),
        epoch_(epoch),
        where_(where) {}
  /// The same with an array of the same numbers, whose values may still be in flight.
  Indices(std::vector<int64_t> values, NDArray array, int64_t seed, int64_t epoch,
          std::source_location where = std::source_location::current())
      : array_(std::move(array)),
        values_(std::make_shared<const std::vector<int64_t>>(std::move(values))),
        seed_(seed),
        epoch_(epoch),
        where_(where) {}

  /// Returns the numbers, which are known at once.
  std::span<const int64_t> values() const { return *values_; }
  int64_t size() const { return static_cast<int64_t>(values_->size()); }
  /// Returns the numbers as an array, i64 (n,) on the CPU. A loader that prefetches makes it available when
  /// the batch may be loaded. So the operations of gather() must read it, directly or through other arrays;
  /// otherwise they start at once and more batches than `prefetch` are in memory.
  const NDArray& array() const { return array_; }
  int64_t seed() const { return seed_; }
  int64_t epoch() const { return epoch_; }
  /// The line of the program that errors of operations name: of the loop over a loader, or where a program
  /// made the indices.
  const std::source_location& where() const { return where_; }

 private:
  NDArray array_;
  std::shared_ptr<const std::vector<int64_t>> values_;
  int64_t seed_, epoch_;
  std::source_location where_;
};

}  // namespace mx::data
