// Loops over operands of one shape and any strides.
//
// Dimensions of size 1 are dropped, and neighbouring dimensions that are contiguous in every operand are
// merged. The order of the dimensions is that of the first operand's memory. This makes the inner loop as
// long as possible.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ndarray/kernels/parallel.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// Minimum number of elements of one piece of a parallel loop.
inline constexpr int64_t kLoopGrain = 32768;

/// The function that is called for each run. It is compiled for each body; the iteration is compiled once,
/// and each run costs one indirect call.
using RunBody = void (*)(const void* body, const int64_t* offsets, int64_t n);
template <class Body>
constexpr RunBody kCallRun = [](const void* body, const int64_t* offsets, int64_t n) {
  (*static_cast<const Body*>(body))(offsets, n);
};

/// Maximum number of operands of a loop.
inline constexpr int kLoopOperands = 5;

/// As the first operand of a LoopPlan, this makes the loop run in row-major order; its offsets are the
/// row-major indices. It has no memory.
inline Tensor row_major_order(const Shape& shape) {
  return {nullptr, DType::i8, shape, contiguous_strides(shape)};
}

/// The joined shape of N operands. shape[0] is the innermost dimension here.
template <int N>
struct LoopPlan {
  static_assert(N >= 1 && N <= kLoopOperands);

  int rank = 0;
  int64_t numel = 1;
  int64_t shape[kMaxRank];
  int64_t strides[N][kMaxRank];  // in elements

  explicit LoopPlan(const std::array<const Tensor*, N>& operands);

  /// Returns the offset in each operand of position `index` in the dimensions from `first` on.
  std::array<int64_t, N> offsets(int first, int64_t index) const;

  /// for_each_run and parallel_runs, below.
  void walk(int64_t begin, int64_t end, RunBody call, const void* body) const;
  void walk_in_parallel(int64_t grain, RunBody call, const void* body) const;
};

/// Calls body(offsets, n) for runs along the innermost dimension, n elements from offsets[k] of operand k on,
/// strides plan.strides[k][0] apart: for elements [begin, end) of the plan's order.
template <int N, class Body>
void for_each_run(const LoopPlan<N>& plan, int64_t begin, int64_t end, const Body& body) {
  plan.walk(begin, end, kCallRun<Body>, std::addressof(body));
}

/// The same for all elements, on several threads when there are many.
template <int N, class Body>
void parallel_runs(const LoopPlan<N>& plan, const Body& body, int64_t grain = kLoopGrain) {
  plan.walk_in_parallel(grain, kCallRun<Body>, std::addressof(body));
}

}  // namespace mx::kernels
