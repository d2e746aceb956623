// PendingBatch: a batch that a data set has begun to gather. Its shapes may be known only when the samples
// have been read.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::data {

class PendingBatch {
 public:
  struct Result {
    std::vector<NDArray> arrays{};
    /// The shapes were known at once, so the first dimension of each array must be the number of samples.
    /// Collate functions may return other shapes.
    bool is_regular = true;
    /// Set if samples were left out: the places, among the requested indices, of those that are there.
    bool is_partial = false;
    std::vector<int64_t> kept{};
  };
  using Finish = std::function<Result()>;
  using IsReady = std::function<bool()>;

  /// The arrays exist; their values may be in flight.
  PendingBatch(std::vector<NDArray> arrays)
      : finish_([arrays = std::move(arrays)]() mutable { return Result{std::move(arrays)}; }),
        is_ready_([] { return true; }) {}
  /// `finish` waits until the shapes are known, and is called once. `is_ready` returns whether that would not
  /// wait.
  PendingBatch(Finish finish, IsReady is_ready)
      : finish_(std::move(finish)), is_ready_(std::move(is_ready)) {}

  bool is_ready() const { return is_ready_(); }
  Result finish() { return finish_(); }

 private:
  Finish finish_;
  IsReady is_ready_;
};

}  // namespace mx::data
