// Sorting on the CPU: sort, argsort, topk, unique, searchsorted.
//
// The order is numeric with NaN last, both ascending and descending. -0 equals 0, and all NaNs are equal.
// Sorting is stable: equal elements keep their order, in descending order too. Any dtype, any strides.
// Targets must not overlap their inputs, except that a target of values may be the source itself. Rows are
// shared among threads. A long row is sorted in as many pieces as there are threads, which are then merged
// pairwise. Only one result is correct, so it does not depend on the number of threads. Thread-safety: any
// thread may call.
#pragma once

#include <cstdint>
#include <vector>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// target = source sorted along `axis`; same shape and dtype.
void sort(const Tensor& target, const Tensor& source, int64_t axis, bool descending = false);

/// target (i32 or i64) = the indices that sort `source` along `axis`.
void argsort(const Tensor& target, const Tensor& source, int64_t axis, bool descending = false);

/// Writes the first k elements of the sorted order along `axis` and their indices (i32 or i64), where k is
/// the targets' size along the axis. `largest` selects the largest elements, otherwise the smallest; NaNs are
/// taken only if there are not enough numbers. Either target may be null.
void topk(const Tensor* values, const Tensor* indices, const Tensor& source, int64_t axis,
          bool largest = true);

/// target (i32 or i64, shape of `values`) = the index at which each value would have to be inserted into
/// `sorted` (n,), which is ascending, to keep it sorted: before equal elements, or after them if `behind`. As
/// numpy.searchsorted.
void searchsorted(const Tensor& target, const Tensor& sorted, const Tensor& values, bool behind = false);

/// The distinct elements of an array, as in numpy.unique; all NaNs are one element. Reads the source in the
/// constructor and again in values(): the source must not change in between.
class Unique {
 public:
  explicit Unique(const Tensor& source);

  /// Returns the number of distinct elements. It is the size of the targets below, which have rank 1 unless
  /// said otherwise.
  int64_t count() const { return static_cast<int64_t>(starts_.size()) - 1; }
  /// Writes the distinct elements, ascending, in the source's dtype. If equal elements have different bits,
  /// the first one is taken.
  void values(const Tensor& target) const;
  /// Writes the row-major index of the first occurrence of each; i32 or i64.
  void first(const Tensor& target) const;
  /// Writes, for each element of the source, its index among the distinct ones; i32 or i64 of the source's
  /// shape.
  void inverse(const Tensor& target) const;
  /// Writes how often each occurs; i32 or i64.
  void counts(const Tensor& target) const;

 private:
  Tensor source_;
  std::vector<int64_t> order_;   // row-major indices, sorted by value
  std::vector<int64_t> starts_;  // position in order_ at which each distinct value begins, and the end
};

}  // namespace mx::kernels
