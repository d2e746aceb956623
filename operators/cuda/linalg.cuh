// Factorisations of one matrix by the threads of a block, for the kernels of linear algebra. Matrices are
// contiguous, row by row. Sums have a fixed order, so results repeat bit for bit.
//
// All threads of the block call each function. Each begins and ends with a barrier.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "operators/cuda/group.cuh"

namespace mx::cuda {

/// The place of the largest magnitude; the first one among equals. A NaN is larger than every number.
template <class A>
struct Largest {
  A size;
  int64_t at;

  __device__ Largest exchanged(int distance) const {
    return {shuffle_xor(size, distance), shuffle_xor(at, distance)};
  }
};
struct LargerPlace {
  template <class A>
  __device__ Largest<A> operator()(const Largest<A>& a, const Largest<A>& b) const {
    const bool a_nan = a.size != a.size, b_nan = b.size != b.size;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (a.size == b.size || a_nan) return a.at < b.at ? a : b;
    return a.size > b.size ? a : b;
  }
};

template <class A>
__device__ inline void fill_with_nan(A* x, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += kBlock) x[i] = static_cast<A>(NAN);
}

/// Divides n numbers by a power of two, `scale`, so that the largest magnitude is in [1, 2): squares of large
/// numbers would be infinite, and those of small ones 0. Returns false to all threads, and changes nothing,
/// if a number is NaN or infinite.
template <class A>
__device__ inline bool scale_finite(A* x, int64_t n, A& scale) {
  A largest = 0;
  for (int64_t i = threadIdx.x; i < n; i += kBlock)
    largest = Larger()(largest, std::isfinite(x[i]) ? std::fabs(x[i]) : static_cast<A>(INFINITY));
  largest = Group<kBlock>::all(largest, Larger());
  scale = 1;
  if (!std::isfinite(largest)) return false;
  const int exponent = largest == 0 ? 0 : std::ilogb(largest);
  scale = std::ldexp(A{1}, exponent);
  for (int64_t i = threadIdx.x; i < n; i += kBlock) x[i] = std::ldexp(x[i], -exponent);
  barrier();
  return true;
}

template <class A>
__device__ inline void swap_rows(A* a, int64_t columns, int64_t i, int64_t j) {
  for (int64_t c = threadIdx.x; c < columns; c += kBlock) {
    const A x = a[i * columns + c];
    a[i * columns + c] = a[j * columns + c];
    a[j * columns + c] = x;
  }
}

/// LU factors of a (m, n) in its place, with partial pivoting. Row k was exchanged with row pivots[k];
/// `rows`, if not null, is permuted likewise. Returns how often rows were exchanged.
template <class A>
__device__ inline int64_t factor_lu(A* a, int64_t m, int64_t n, int64_t* pivots, int64_t* rows) {
  int64_t exchanges = 0;
  barrier();
  for (int64_t k = 0; k < m && k < n; ++k) {
    Largest<A> best{A{-1}, m};
    for (int64_t i = k + threadIdx.x; i < m; i += kBlock)
      best = LargerPlace()(best, Largest<A>{std::fabs(a[i * n + k]), i});
    best = Group<kBlock>::all(best, LargerPlace());
    if (best.at != k) {
      ++exchanges;
      swap_rows(a, n, k, best.at);
    }
    if (threadIdx.x == 0) {
      if (pivots != nullptr) pivots[k] = best.at;
      if (rows != nullptr) {
        const int64_t row = rows[k];
        rows[k] = rows[best.at];
        rows[best.at] = row;
      }
    }
    barrier();
    const A pivot = a[k * n + k];
    // A column of zeros has the factors 0.
    for (int64_t i = k + 1 + threadIdx.x; i < m; i += kBlock)
      if (pivot != 0) a[i * n + k] /= pivot;
    barrier();
    const int64_t width = n - k - 1, count = (m - k - 1) * width;
    for (int64_t at = threadIdx.x; at < count; at += kBlock) {
      const int64_t i = k + 1 + at / width, j = k + 1 + at % width;
      a[i * n + j] -= a[i * n + k] * a[k * n + j];
    }
    barrier();
  }
  return exchanges;
}

/// Replaces x (n, columns) by t^-1 x for the triangle t of `a` (n, n), whose diagonal is 1 if `unit`.
template <class A>
__device__ inline void solve_triangle(const A* a, int64_t n, A* x, int64_t columns, bool upper, bool unit) {
  barrier();
  for (int64_t step = 0; step < n; ++step) {
    const int64_t k = upper ? n - 1 - step : step;
    if (!unit) {
      const A pivot = a[k * n + k];
      for (int64_t c = threadIdx.x; c < columns; c += kBlock) x[k * columns + c] /= pivot;
      barrier();
    }
    const int64_t first = upper ? 0 : k + 1, rest = upper ? k : n - k - 1;
    for (int64_t at = threadIdx.x; at < rest * columns; at += kBlock) {
      const int64_t i = first + at / columns, c = at % columns;
      x[i * columns + c] -= a[i * n + k] * x[k * columns + c];
    }
    barrier();
  }
}

/// Returns the first place at which the diagonal of a (n, n) is 0, or n, to all threads.
template <class A>
__device__ inline int64_t first_zero_pivot(const A* a, int64_t n) {
  int64_t from_end = 0;
  for (int64_t k = threadIdx.x; k < n; k += kBlock)
    if (a[k * n + k] == 0) from_end = Larger()(from_end, n - k);
  return n - Group<kBlock>::all(from_end, Larger());
}

/// The same elements as matrices with rows and columns exchanged.
inline Tensor with_turned_matrices(const Tensor& x) {
  Tensor result = x;
  const int rank = x.rank();
  std::swap(result.shape[rank - 1], result.shape[rank - 2]);
  std::swap(result.strides[rank - 1], result.strides[rank - 2]);
  return result;
}

/// The number of matrices.
inline int64_t matrices_of(const Tensor& x) {
  int64_t count = 1;
  for (int d = 0; d + 2 < x.rank(); ++d) count *= x.shape[d];
  return count;
}

/// A stack of matrices with the first dimensions of another array, broadcast.
inline Tensor in_stack(const Tensor& x, const Shape& like) {
  Shape shape = like;
  const int rank = like.rank();
  for (int d = 1; d <= 2; ++d) shape[rank - d] = x.shape[x.rank() - d];
  return x.broadcast(shape);
}

}  // namespace mx::cuda
