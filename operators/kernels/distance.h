// Distances of all pairs of rows, and their gradients, on the CPU.
//
// The differences themselves are squared and summed. The other formula, |a|^2 + |b|^2 - 2ab, takes one
// product of matrices, which is about twice as fast, but subtracts numbers of the size of |a|^2: the distance
// of two rows that are close to each other compared with their norm loses all its digits. The gradients use
// the differences for the same reason. Sums are made in pieces. The bits of a distance depend only on its two
// rows and on the processor's instruction set; those of a gradient also on the shapes. Neither depends on the
// number of threads. Thread-safety: any thread may call.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

namespace detail {

/// A block of rows of `a` and a panel of rows of `b`, whose distances one thread computes.
struct DistanceBlock {
  const Tensor& target;
  const Tensor& a;
  const Tensor& b;
  double p;
  int64_t first_row, rows;
  int64_t first_column, columns;
};

/// Coordinates whose terms are added one after the other, and rows of `a` for which a panel of `b` is packed.
inline constexpr int64_t kDepth = 128, kBlockRows = 64;

/// Rows of `a`, some of their coordinates, and a range of rows of `b`, for which one thread computes sums of
/// the gradient.
struct GradientBlock {
  const Tensor& target;
  const Tensor& head;
  const Tensor& a;
  const Tensor& b;
  const Tensor& distance;
  double p;
  int64_t first_row, rows;
  int64_t first, depth;  ///< coordinates
  int64_t begin, end;    ///< rows of b
};

inline constexpr int64_t kGradientRows = 32, kGradientPiece = 256;

}  // namespace detail

/// target[i, j] = the distance of order p >= 0 of a[i] and b[j]: the norm of a[i] - b[j], as norm() computes
/// it. Shapes (m, n), (m, k) and (n, k); any strides; all f32 or all f64. The target must not overlap the
/// operands. Runs on several threads if large.
void distances(const Tensor& target, const Tensor& a, const Tensor& b, double p = 2);

/// target[i] = the gradient with respect to a[i] of the sum over j of head[i, j] times the distance of a[i]
/// and b[j], where `distance` (m, n) has these distances. That of a distance of 0 is 0, and for p = inf the
/// coordinates with the largest difference share it, which are found by comparing with `distance`. Shapes (m,
/// k), (m, n), (m, k), (n, k) and (m, n); any strides; all f32 or all f64; p > 0. The target must not overlap
/// the operands. Runs on several threads if large.
void distance_gradient(const Tensor& target, const Tensor& head, const Tensor& a, const Tensor& b,
                       const Tensor& distance, double p);

}  // namespace mx::kernels
