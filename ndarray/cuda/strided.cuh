// Kernels over elements: which elements a thread computes, and where they are in arrays of any strides.
//
// A thread of a flat loop computes four neighbouring elements, which it reads and writes as vectors. Arrays
// are flat if they are contiguous in one common order, or one repeated element. The threads of any other loop
// compute single elements, neighbouring threads neighbouring elements of the result.
#pragma once

#include <array>
#include <cstdint>

#include "ndarray/cuda/element.cuh"
#include "ndarray/kernels/strided_loop.h"

namespace mx::cuda {

using kernels::LoopPlan;

/// Threads of a block, and elements of a thread of a flat loop.
inline constexpr int kLoopThreads = 256, kLoopVector = 4;

/// Four neighbouring elements, as one access to memory.
template <class T>
struct alignas(sizeof(T) * kLoopVector < 16 ? sizeof(T) * kLoopVector : 16) Vector {
  T v[kLoopVector];
};

/// A loop over N arrays of one shape. The first one is the result.
template <int N>
struct Loop {
  LoopPlan<N> plan;
  bool flat = true;    ///< one dimension, with strides of 1, or of 0 in arrays that are read
  bool narrow = true;  ///< 32 bits hold each index

  Loop(const std::array<const Tensor*, N>& tensors) : plan(tensors) {
    narrow = plan.numel <= INT32_MAX;
    flat = plan.rank == 1;
    for (int k = 0; k < N; ++k) {
      const int64_t stride = plan.strides[k][0];
      const bool repeated = stride == 0 && (k > 0 || plan.numel == 1);
      flat = flat && (stride == 1 || repeated);
      const size_t vector = size_of(tensors[static_cast<size_t>(k)]->dtype) * kLoopVector;
      const auto address = reinterpret_cast<uintptr_t>(tensors[static_cast<size_t>(k)]->data);
      flat = flat && (repeated || address % (vector < 16 ? vector : 16) == 0);
    }
  }
  bool empty() const { return plan.numel == 0; }
  /// Returns the number of blocks; a kernel loops over the elements that remain.
  unsigned blocks() const {
    constexpr int64_t kMost = int64_t{1} << 16;
    return blocks_for(flat ? (plan.numel + kLoopVector - 1) / kLoopVector : plan.numel, kLoopThreads, kMost);
  }
};

/// Computes the offsets of element `index` of the plan's order in all its arrays.
template <int N>
__device__ inline void element_offsets(const LoopPlan<N>& plan, bool narrow, int64_t index,
                                       int64_t (&at)[N]) {
  for (int k = 0; k < N; ++k) at[k] = 0;
  if (narrow) {
    uint32_t rest = static_cast<uint32_t>(index);
    for (int i = 0; i < plan.rank - 1; ++i) {
      const uint32_t size = static_cast<uint32_t>(plan.shape[i]);
      const uint32_t next = rest / size;
      const int64_t place = rest - next * size;
      for (int k = 0; k < N; ++k) at[k] += place * plan.strides[k][i];
      rest = next;
    }
    for (int k = 0; k < N; ++k) at[k] += static_cast<int64_t>(rest) * plan.strides[k][plan.rank - 1];
    return;
  }
  for (int i = 0; i < plan.rank - 1; ++i) {
    const int64_t next = index / plan.shape[i];
    const int64_t place = index - next * plan.shape[i];
    for (int k = 0; k < N; ++k) at[k] += place * plan.strides[k][i];
    index = next;
  }
  for (int k = 0; k < N; ++k) at[k] += index * plan.strides[k][plan.rank - 1];
}

}  // namespace mx::cuda
