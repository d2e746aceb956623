// Groups of threads that compute one row together: one thread, a warp, or a block. The size of a group
// depends on shapes and strides only, and values combine in a fixed order, so results repeat bit for bit.
#pragma once

#include <cstdint>

#include "ndarray/cuda/element.cuh"

namespace mx::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  ///< threads of every block here

/// The threads of a group: kLanes is 1, kWarp or kBlock.
template <int kLanes>
struct Group {
  static_assert(kLanes == 1 || kLanes == kWarp || kLanes == kBlock);
  static constexpr int kThreads = kLanes;
  static constexpr int kRows = kBlock / kLanes;  ///< groups of a block

  /// The row of this thread's group.
  __device__ static int64_t row() { return static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes; }
  /// The number of this thread in its group.
  __device__ static int lane() { return static_cast<int>(threadIdx.x % kLanes); }

  /// Returns combine() over the values of the group, to all its threads. combine(a, b) is called with a from
  /// the lower lanes. All threads of the group must call.
  template <class T, class F>
  __device__ static T all(T value, const F& combine) {
    if constexpr (kLanes == 1) return value;
    value = warp_fold(value, combine);
    if constexpr (kLanes == kBlock) {
      T* const partial = block_shared<T, kBlock / kWarp>();
      barrier();  // the reads of an earlier call have ended
      if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
      barrier();
      value = partial[0];
      for (int i = 1; i < kBlock / kWarp; ++i) value = combine(value, partial[i]);
    }
    return value;
  }

 private:
  // Lane k combines with lane k ^ 1, then k ^ 2, and so on; the lower lane's value is the first operand, so
  // all lanes get the same bits.
  template <class T, class F>
  __device__ static T warp_fold(T value, const F& combine) {
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const T other = exchanged(value, distance);
      value = (threadIdx.x & static_cast<unsigned>(distance)) != 0 ? combine(other, value)
                                                                   : combine(value, other);
    }
    return value;
  }
  template <class T>
  __device__ static T exchanged(const T& value, int distance) {
    if constexpr (requires { value.exchanged(distance); })
      return value.exchanged(distance);
    else
      return shuffle_xor(value, distance);
  }
};

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// The larger number; a NaN is not larger.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

/// Up to kMaxRank dimensions with the strides of N arrays; number 0 is the innermost.
template <int N>
struct Dims {
  int rank = 0;
  int64_t shape[kMaxRank];
  int64_t strides[N][kMaxRank];

  /// Returns the offset in array k of a row-major index.
  __device__ int64_t offset(int k, int64_t index) const {
    int64_t result = 0;
    for (int d = 0; d + 1 < rank; ++d) {
      int64_t rest;
      if (index >> 31 == 0 && shape[d] >> 31 == 0) {  // division of 64-bit numbers is slow
        const uint32_t i = static_cast<uint32_t>(index), n = static_cast<uint32_t>(shape[d]);
        rest = i % n;
        index = i / n;
      } else {
        rest = index % shape[d];
        index /= shape[d];
      }
      result += rest * strides[k][d];
    }
    return rank == 0 ? 0 : result + index * strides[k][rank - 1];
  }

  /// Adds an outer dimension, or joins it to the last one if it continues it in all arrays.
  void add(int64_t size, const int64_t (&stride)[N]) {
    if (size == 1) return;
    bool joins = rank > 0;
    for (int k = 0; joins && k < N; ++k) joins = stride[k] == strides[k][rank - 1] * shape[rank - 1];
    if (joins) {
      shape[rank - 1] *= size;
      return;
    }
    shape[rank] = size;
    for (int k = 0; k < N; ++k) strides[k][rank] = stride[k];
    ++rank;
  }
};

/// The elements of N arrays of one shape in row-major order.
template <int N>
Dims<N> dims_of(const Tensor* const (&tensors)[N]) {
  Dims<N> dims;
  for (int d = tensors[0]->rank() - 1; d >= 0; --d) {
    int64_t stride[N];
    for (int k = 0; k < N; ++k) stride[k] = tensors[k]->strides[d];
    dims.add(tensors[0]->shape[d], stride);
  }
  return dims;
}

/// The rows of N arrays of one shape: all elements along an axis, for each index of the other axes.
template <int N>
struct Rows {
  Dims<N> outer;
  int64_t rows = 1, n = 1;
  int64_t step[N];  ///< along a row
};

/// `axis` is normalised; an array of rank 0 is one row of one element.
template <int N>
Rows<N> rows_of(const Tensor* const (&tensors)[N], int axis) {
  Rows<N> rows;
  const Tensor& like = *tensors[0];
  for (int d = like.rank() - 1; d >= 0; --d) {
    if (d == axis) continue;
    int64_t stride[N];
    for (int k = 0; k < N; ++k) stride[k] = tensors[k]->strides[d];
    rows.outer.add(like.shape[d], stride);
    rows.rows *= like.shape[d];
  }
  rows.n = like.rank() == 0 ? 1 : like.shape[axis];
  for (int k = 0; k < N; ++k) rows.step[k] = like.rank() == 0 ? 1 : tensors[k]->strides[axis];
  return rows;
}

/// Returns how many threads should compute a row of n elements. `adjacent`: neighbouring elements of a row
/// are neighbours in memory. If not, neighbouring rows most often are, and threads that have one row each
/// read neighbouring elements.
inline int lanes_for(int64_t rows, int64_t n, bool adjacent) {
  constexpr int64_t kFewElements = 8, kManyRows = 8192, kWarpElements = 1024;
  if (n <= kFewElements || (!adjacent && rows >= kManyRows)) return 1;
  return n <= kWarpElements ? kWarp : kBlock;
}

/// Calls f.template operator()<kLanes>(blocks) for groups of `lanes` threads.
template <class F>
void visit_lanes(int lanes, int64_t rows, const F& f) {
  const auto blocks = [rows](int64_t each) { return whole_grid(rows, each); };
  if (lanes == 1) {
    f.template operator()<1>(blocks(kBlock));
  } else if (lanes == kWarp) {
    f.template operator()<kWarp>(blocks(kBlock / kWarp));
  } else {
    f.template operator()<kBlock>(blocks(1));
  }
}

}  // namespace mx::cuda
