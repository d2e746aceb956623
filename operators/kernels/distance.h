// Euclidean distances of all pairs of rows, on the CPU.
//
// The differences themselves are squared and summed. The other formula, |a|^2 + |b|^2 - 2ab, takes one
// product of matrices, which is about twice as fast, but subtracts numbers of the size of |a|^2: the distance
// of two rows that are close to each other compared with their norm loses all its digits. Sums are made in
// pieces of kDepth coordinates. The bits of a distance depend only on its two rows and on the processor's
// instruction set. Thread-safety: any thread may call.
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
  int64_t first_row, rows;
  int64_t first_column, columns;
};

/// Coordinates whose squares are added one after the other, and rows of `a` for which a panel of `b` is
/// packed.
inline constexpr int64_t kDepth = 128, kBlockRows = 64;

}  // namespace detail

/// target[i, j] = the distance of a[i] and b[j]. Shapes (m, n), (m, k) and (n, k); any strides; all f32 or
/// all f64. The target must not overlap the operands. Runs on several threads if large.
void distances(const Tensor& target, const Tensor& a, const Tensor& b);

}  // namespace mx::kernels
