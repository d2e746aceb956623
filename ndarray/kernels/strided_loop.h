// Loops over operands of one shape and any strides.
//
// Dimensions of one element are dropped, neighbours that every operand walks without a gap are joined, and
// the order is that of the first operand's memory, so that an inner loop is as long as it can be.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ndarray/kernels/parallel.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// Elements that one piece of a parallel loop should have at least.
inline constexpr int64_t kLoopGrain = 32768;

/// What a run calls. A function for each body; what walks is compiled once, and a run costs one such call.
using RunBody = void (*)(const void* body, const int64_t* offsets, int64_t n);
template <class Body>
constexpr RunBody kCallRun = [](const void* body, const int64_t* offsets, int64_t n) {
  (*static_cast<const Body*>(body))(offsets, n);
};

/// Operands that a loop may have.
inline constexpr int kLoopOperands = 5;

/// As the first operand of a LoopPlan it makes the loop row-major, and its offsets those of that order. There
/// is nothing behind it.
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

  /// Where place `index` of the dimensions from `first` on, counted in their order, is in each operand.
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
