// The rows of an array along one axis, for the kernels that sort and select. Internal.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ndarray/kernels/strided_loop.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// Elements at one distance from each other.
template <class T>
struct SortRow {
  T* data;
  int64_t step;
  T& operator[](int64_t i) const { return data[i * step]; }
};

/// Finds the rows of an array along `axis`, numbered in row-major order of the other dimensions.
class RowsAlong {
 public:
  RowsAlong(const Tensor& t, int axis) : t_(t), axis_(axis), shape_(t.shape), strides_(t.strides) {
    shape_.erase(axis);
    strides_.erase(axis);
  }
  int64_t count() const { return shape_.numel(); }
  /// T is the array's type, or that type with const.
  template <class T>
  SortRow<T> row(int64_t i) const {
    return {static_cast<T*>(t_.data) + place_of(i, shape_, strides_), t_.strides[axis_]};
  }

 private:
  const Tensor& t_;
  int axis_;
  Shape shape_;
  Strides strides_;
};

/// Returns how many rows of n elements one thread takes at a time. Threads share the loops inside a row from
/// kLongRow elements on; otherwise they share the rows.
inline int64_t rows_at_a_time(int64_t rows, int64_t n) {
  constexpr int64_t kLongRow = 32768;
  return n > kLongRow ? std::max(int64_t{1}, rows)
                      : std::max(int64_t{1}, kLoopGrain / 8 / std::max(int64_t{1}, n));
}

}  // namespace mx::kernels
