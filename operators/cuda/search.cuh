// Binary search in ascending numbers, for kernels.
#pragma once

#include <cstdint>

#include "ndarray/cuda/element.cuh"

namespace mx::cuda {

/// Integers of any type and stride.
struct Integers {
  Elements data;
  int64_t step, count;

  explicit Integers(const Tensor& t) : data(elements_of(t)), step(t.strides[0]), count(t.shape[0]) {}
  __device__ int64_t operator[](int64_t i) const { return load<int64_t>(data, i * step); }
};

/// Returns how many of the first n numbers of x are below `value`. They must ascend; if not, the result is
/// some number from 0 to n.
template <class X>
__device__ inline int64_t count_below(const X& x, int64_t n, int64_t value) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (static_cast<int64_t>(x[middle]) < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ inline int64_t limited(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/// The half-open range of the entries of row or segment s.
struct EntryRange {
  int64_t first, end;

  /// Wrong offsets give ranges within the entries.
  __device__ EntryRange(const Integers& offsets, int64_t s, int64_t entries)
      : first(limited(offsets[s], 0, entries)), end(limited(offsets[s + 1], first, entries)) {}
};

}  // namespace mx::cuda
