// Sorting on the CPU: sort, argsort, topk, unique, searchsorted.
//
// The order is that of the numbers, with NaN last, ascending or descending; -0 equals 0, and all NaNs are one
// another's equals. Equal elements stay in the order in which they came, descending too. Any dtype, any
// strides; targets must not overlap their inputs, except that a target of values may be the source itself.
// Rows are shared among threads, and a long row is sorted in as many pieces as there are threads, which are
// merged pairwise: there is one right order, so results depend on nothing else. Any thread may call.
#pragma once

#include <cstdint>
#include <vector>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// target = source sorted along `axis`; same shape and dtype.
void sort(const Tensor& target, const Tensor& source, int64_t axis, bool descending = false);

/// target (i32 or i64) = the indices that sort it.
void argsort(const Tensor& target, const Tensor& source, int64_t axis, bool descending = false);

/// The first k of the sorted order along `axis`, where k is the targets' size there: the largest (NaNs come
/// only when there is nothing else) or the smallest, and their indices (i32 or i64). Either target may be
/// null.
void topk(const Tensor* values, const Tensor* indices, const Tensor& source, int64_t axis,
          bool largest = true);

/// target (i32 or i64, shape of `values`) = where `values` would have to be inserted into `sorted` (n,)
/// ascending so that it stays sorted: before its equals, or behind them. As numpy.searchsorted.
void searchsorted(const Tensor& target, const Tensor& sorted, const Tensor& values, bool behind = false);

/// The different elements of an array, as numpy.unique finds them (all NaNs are one). Reads the source when
/// made and again in values(); it must stay as it is between the two.
class Unique {
 public:
  explicit Unique(const Tensor& source);

  /// How many there are: the size of the targets below, which are of rank 1 unless said otherwise.
  int64_t count() const { return static_cast<int64_t>(starts_.size()) - 1; }
  /// They, ascending; of the source's dtype. Of equals with different bits, that which came first.
  void values(const Tensor& target) const;
  /// Row-major index of the first of each; i32 or i64.
  void first(const Tensor& target) const;
  /// For each element of the source which of them it is; i32 or i64 of the source's shape.
  void inverse(const Tensor& target) const;
  /// How often each occurs; i32 or i64.
  void counts(const Tensor& target) const;

 private:
  Tensor source_;
  std::vector<int64_t> order_;   // row-major indices, sorted by value
  std::vector<int64_t> starts_;  // where in order_ each different value begins, and the end
};

}  // namespace mx::kernels
