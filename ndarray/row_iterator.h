// RowIterator: iterates over an array's first dimension, in for (const NDArray& row : a) and in standard
// algorithms that only read (find_if, for_each, views::reverse).
//
// Part of ndarray.h, which includes it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "ndarray/ndarray.h"

namespace mx {

/// Points to a[i]; each dereference makes a new handle. The iterator owns a handle to the array, so it may
/// outlive other handles. Iterators of different arrays must not be compared. Dereferencing throws
/// InvalidArgument if i is out of range.
///
/// Rows are changed through their members (row.fill_(0)), not by assignment through the iterator. Algorithms
/// that move elements (sort, reverse, rotate) do not compile: a handle to a row is not a copy of it, so they
/// would read elements that they have overwritten. To reorder rows, index: a[order].
class RowIterator {
 public:
  using value_type = NDArray;
  using difference_type = std::ptrdiff_t;
  using reference = NDArray;
  using pointer = void;
  using iterator_category = std::input_iterator_tag;  // C++17: a stronger one needs a real reference
  using iterator_concept = std::random_access_iterator_tag;

  RowIterator() = default;
  RowIterator(NDArray array, int64_t row) : array_(std::move(array)), row_(row) {}

  NDArray operator*() const { return array_[row_]; }
  NDArray operator[](difference_type n) const { return array_[row_ + n]; }

  RowIterator& operator++() { return *this += 1; }
  RowIterator& operator--() { return *this -= 1; }
  RowIterator operator++(int) { return {array_, row_++}; }
  RowIterator operator--(int) { return {array_, row_--}; }
  RowIterator& operator+=(difference_type n) {
    row_ += n;
    return *this;
  }
  RowIterator& operator-=(difference_type n) { return *this += -n; }
  friend RowIterator operator+(RowIterator i, difference_type n) { return i += n; }
  friend RowIterator operator+(difference_type n, RowIterator i) { return i += n; }
  friend RowIterator operator-(RowIterator i, difference_type n) { return i -= n; }
  friend difference_type operator-(const RowIterator& a, const RowIterator& b) { return a.row_ - b.row_; }
  friend bool operator==(const RowIterator& a, const RowIterator& b) { return a.row_ == b.row_; }
  friend auto operator<=>(const RowIterator& a, const RowIterator& b) { return a.row_ <=> b.row_; }

 private:
  NDArray array_;
  int64_t row_ = 0;
};

}  // namespace mx
