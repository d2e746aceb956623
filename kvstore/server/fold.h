// Sums of the values that workers have pushed: the serial left fold over the workers. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/type.h"
#include "kvstore/server/bytes.h"

namespace mx::kv {

/// Folds values in the order of their numbers, as early as possible: a value is added as soon as all values
/// with lower numbers have been added. f16 and bf16 are added in f32 and rounded once, so their values are
/// kept until the last one has come.
class RankSum {
 public:
  RankSum(comm::Type type, size_t values) : type_(type), values_(values), present_(values, false) {}

  comm::Type type() const { return type_; }
  bool has(size_t i) const { return present_[i]; }
  bool complete() const { return count_ == values_.size(); }
  /// Precondition: value i has not been added. All values have the same size.
  void add(size_t i, Bytes value);
  /// Returns the sum, divided by `divisor` unless that is 0 or 1. Precondition: complete(). The object must
  /// not be used afterwards.
  Bytes take(uint64_t divisor);

 private:
  const comm::Type type_;
  std::vector<Bytes> values_;
  std::vector<bool> present_;
  size_t count_ = 0;
  size_t folded_ = 0;  // values_[0] is the sum of the values before this one
};

}  // namespace mx::kv
