// The first few elements of the sorted order of a row, without sorting the row. Internal.
//
// A buffer holds the best candidates. Only elements before the k-th of them can belong to the result; a
// vectorised scan finds these, and almost no element is one in a long row. When the buffer is full, it is cut
// to k. A key and its index are one number, so all are different, and only one result is possible.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "operators/kernels/sort_keys.h"
#include "operators/kernels/sort_rows.h"
#include "operators/kernels/top_filter.h"

namespace mx::kernels {

/// Finds the first k elements of rows, one row after the other. P is a packing; 0 < k <= the row's size.
template <class T, class P>
class TopRow {
  using Number = typename P::Number;

 public:
  TopRow(int64_t k, bool descending) : k_(k), descending_(descending), keys_(2 * k + kSlack) {}

  /// Scans at least k elements, [begin, end) of the row. After that the numbers of the first k are at the
  /// front of keys(), in any order.
  void scan(const SortRow<const T>& row, int64_t begin, int64_t end) {
    size_ = 0;
    int64_t at = begin;
    for (const int64_t full = std::min(end, begin + keys_.n); at < full; ++at)
      keys_[size_++] = P::make(key_of(row[at], descending_), at);
    if (size_ > k_) cut();
    // Pieces grow with the number of elements seen, because fewer and fewer pass the filter.
    std::array<uint16_t, kFilterElements> found;
    std::array<T, kFilterElements> copy;
    for (int64_t piece = 128; at < end; piece = std::min(2 * piece, kFilterElements)) {
      const int64_t n = std::min(piece, end - at);
      const T* x = row.data + at;
      if (row.step != 1) {
        for (int64_t i = 0; i < n; ++i) copy[static_cast<size_t>(i)] = row[at + i];
        x = copy.data();
      }
      const int64_t count = filter_top(x, n, limit_, descending_, found.data());
      for (int64_t f = 0; f < count; ++f) {
        const int64_t i = found[static_cast<size_t>(f)];
        const BitsOf<T> key = key_of(x[i], descending_);
        if (key >= limit_) continue;
        keys_[size_++] = P::make(key, at + i);
        if (size_ == keys_.n) cut();
      }
      at += n;
    }
    if (size_ > k_) cut();
  }
  Keys<Number>& keys() { return keys_; }

 private:
  static constexpr int64_t kSlack = 32;  // so that a small buffer is not cut after every few elements

  void cut() {
    std::nth_element(keys_.begin(), keys_.begin() + k_ - 1, keys_.begin() + size_);
    size_ = k_;
    limit_ = static_cast<BitsOf<T>>(P::key(keys_[k_ - 1]));
  }

  int64_t k_;
  bool descending_;
  Keys<Number> keys_;
  int64_t size_ = 0;
  BitsOf<T> limit_ = 0;
};

}  // namespace mx::kernels
