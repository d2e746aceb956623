// Rotations of pairs of rows and columns, for the kernels of eigenvalues and singular values.
#pragma once

#include <cmath>
#include <cstdint>

#include "operators/cuda/linalg.cuh"

namespace mx::cuda {

inline constexpr int kMostSweeps = 40;

/// The two members of pair number `pair` of a round, for n that is even or is made so: in n - 1 rounds every
/// pair occurs once. A member may be n - 1 although there are only n - 1 rows.
__device__ inline void pair_of_round(int64_t n, int64_t round, int64_t pair, int64_t& p, int64_t& q) {
  const int64_t ring = n - 1;
  const int64_t a = pair == 0 ? ring : (round + pair) % ring;
  const int64_t b = pair == 0 ? round % ring : (round + ring - pair) % ring;
  p = a < b ? a : b;
  q = a < b ? b : a;
}

/// The rotation that makes the element between the diagonal elements x and y 0.
template <class A>
__device__ inline void rotation_of(A x, A y, A between, A& c, A& s) {
  c = 1;
  s = 0;
  if (between == 0) return;
  const A tau = (y - x) / (2 * between);
  const A t = (tau >= 0 ? A{1} : A{-1}) / (std::fabs(tau) + sqrt(1 + tau * tau));
  c = 1 / sqrt(1 + t * t);
  s = t * c;
}

template <class A>
__device__ inline A epsilon_of() {
  return sizeof(A) == sizeof(double) ? static_cast<A>(0x1p-52) : static_cast<A>(0x1p-23);
}

/// Returns how many of the numbers x[0], x[step], .. come before number i in the sorted order. NaN come last,
/// so the ranks are a permutation whatever the numbers are.
template <class A>
__device__ inline int64_t rank_of(const A* x, int64_t step, int64_t n, int64_t i, bool descending) {
  int64_t rank = 0;
  const A own = x[i * step];
  for (int64_t j = 0; j < n; ++j) {
    const A other = x[j * step];
    const bool own_nan = own != own, other_nan = other != other;
    const bool same = own_nan ? other_nan : other == own;
    const bool before = own_nan ? !other_nan : descending ? other > own : other < own;
    if (before || (same && j < i)) ++rank;
  }
  return rank;
}

}  // namespace mx::cuda
