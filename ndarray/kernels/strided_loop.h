// Loops over operands of one shape and any strides.
//
// Dimensions of one element are dropped, neighbours that every operand walks without a gap are joined, and
// the order is that of the first operand's memory, so that an inner loop is as long as it can be.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "ndarray/kernels/parallel.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// Elements that one piece of a parallel loop should have at least.
inline constexpr int64_t kLoopGrain = 32768;

/// The joined shape of N operands. shape[0] is the innermost dimension here.
template <int N>
struct LoopPlan {
  int rank = 0;
  int64_t numel = 1;
  int64_t shape[kMaxRank];
  int64_t strides[N][kMaxRank];  // in elements

  explicit LoopPlan(const std::array<const Tensor*, N>& operands) {
    const Shape& full = operands[0]->shape;
    int order[kMaxRank];
    int dims = 0;
    for (int i = full.rank() - 1; i >= 0; --i) {
      numel *= full[i];
      if (full[i] != 1) order[dims++] = i;
    }
    // By the first operand's strides, smallest innermost; dimensions that are equal there stay as they are.
    const auto distance = [&](int i) {
      const int64_t s = operands[0]->strides[i];
      return s < 0 ? -s : s;
    };
    std::stable_sort(order, order + dims, [&](int a, int b) { return distance(a) < distance(b); });
    for (int i = 0; i < dims; ++i) {
      const int d = order[i];
      bool joins = rank > 0;
      for (int k = 0; k < N && joins; ++k)
        joins = operands[k]->strides[d] == strides[k][rank - 1] * shape[rank - 1];
      if (joins) {
        shape[rank - 1] *= full[d];
        continue;
      }
      shape[rank] = full[d];
      for (int k = 0; k < N; ++k) strides[k][rank] = operands[k]->strides[d];
      ++rank;
    }
    if (rank == 0) {
      rank = 1;
      shape[0] = 1;
      for (int k = 0; k < N; ++k) strides[k][0] = 0;
    }
  }

  /// Where place `index` of the dimensions from `first` on, counted in their order, is in each operand.
  std::array<int64_t, N> offsets(int first, int64_t index) const {
    std::array<int64_t, N> at{};
    for (int i = first; i < rank; ++i) {
      for (int k = 0; k < N; ++k) at[static_cast<size_t>(k)] += index % shape[i] * strides[k][i];
      index /= shape[i];
    }
    return at;
  }
};

/// Calls body(offsets, n) for runs along the innermost dimension, n elements from offsets[k] of operand k on,
/// strides plan.strides[k][0] apart: for elements [begin, end) of the plan's order.
template <int N, class Body>
void for_each_run(const LoopPlan<N>& plan, int64_t begin, int64_t end, const Body& body) {
  if (begin >= end) return;
  int64_t index[kMaxRank];
  std::array<int64_t, N> offsets{};
  int64_t rest = begin;
  for (int i = 0; i < plan.rank; ++i) {
    index[i] = rest % plan.shape[i];
    rest /= plan.shape[i];
    for (int k = 0; k < N; ++k) offsets[static_cast<size_t>(k)] += index[i] * plan.strides[k][i];
  }
  for (int64_t done = begin; done < end;) {
    const int64_t n = std::min(plan.shape[0] - index[0], end - done);
    body(offsets, n);
    done += n;
    if (done >= end) return;
    // The next run: back to the start of the innermost dimension, one further in the others.
    for (int k = 0; k < N; ++k) offsets[static_cast<size_t>(k)] -= index[0] * plan.strides[k][0];
    index[0] = 0;
    for (int i = 1; i < plan.rank; ++i) {
      for (int k = 0; k < N; ++k) offsets[static_cast<size_t>(k)] += plan.strides[k][i];
      if (++index[i] < plan.shape[i]) break;
      for (int k = 0; k < N; ++k) offsets[static_cast<size_t>(k)] -= plan.shape[i] * plan.strides[k][i];
      index[i] = 0;
    }
  }
}

/// The same for all elements, on several threads when there are many.
template <int N, class Body>
void parallel_runs(const LoopPlan<N>& plan, const Body& body, int64_t grain = kLoopGrain) {
  parallel_for(plan.numel, grain,
               [&](int64_t begin, int64_t end) { for_each_run<N>(plan, begin, end, body); });
}

}  // namespace mx::kernels
