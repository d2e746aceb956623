// Indices along axes, shared by the kernels that read and write at them.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/error.h"
#include "ndarray/cuda/kernel_errors.cuh"
#include "ndarray/cuda/strided.cuh"
#include "operators/cuda/group.cuh"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/index_check.h"
#include "operators/scratch.h"

namespace mx::cuda {

inline constexpr int64_t kOffsets = -1;

/// Converts an index to one in [0, size). With the size kOffsets it is already an offset, and stays as it is.
/// An index that is an error becomes the nearest one in range, so that no memory beyond the array is touched.
struct ResolveIndex {
  int64_t size;
  kernels::IndexMode mode;

  __device__ int64_t operator()(int64_t index) const {
    if (size == kOffsets) return index;
    if (mode == kernels::IndexMode::wrap) {
      const int64_t rest = index % size;
      return rest < 0 ? rest + size : rest;
    }
    if (mode == kernels::IndexMode::raise && index < 0) index += size;
    return index < 0 ? 0 : index >= size ? size - 1 : index;
  }
};

/// A bad index is noted at its place in row-major order.
inline __global__ void __launch_bounds__(kBlock)
    check_index_range(Elements index, Dims<1> dims, int64_t n, int64_t lowest, int64_t size,
                      KernelError* bad) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t value = load<int64_t>(index, dims.offset(0, i));
    if (value < lowest || value >= size) note_error(bad, i, value);
  }
}

/// Checks indices into `axis`, of this size, with the messages of kernels::detail::check_indices(). A pass of
/// its own, because the CPU checks all indices whether or not an element is read or written at them.
inline void check_indices(const KernelArgs& args, const char* op, const Tensor& indices, int64_t lowest,
                          int64_t size, int axis, kernels::IndexMode mode = kernels::IndexMode::raise) {
  const int64_t n = indices.numel();
  if (n == 0) return;
  if (size <= 0) throw InvalidArgument(kernels::detail::no_place_for_indices(op, axis, n));
  if (mode != kernels::IndexMode::raise) return;
  BadValues bad(args, [=, shape = indices.shape](const KernelError& e) {
    return kernels::detail::bad_index(op, lowest, size, axis, e.value,
                                      kernels::detail::position_of(e.place, shape));
  });
  launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, check_index_range, elements_of(indices),
         dims_of<1>({&indices}), n, lowest, size, bad.word());
  bad.check();
}

/// offsets[i] = (add ? offsets[i] : 0) + index[i] * stride, for the n elements of the indices in row-major
/// order.
inline __global__ void __launch_bounds__(kBlock)
    locate_indices(int64_t* offsets, Elements index, Dims<1> dims, int64_t n, ResolveIndex resolve,
                   int64_t stride, bool add) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t place = resolve(load<int64_t>(index, dims.offset(0, i))) * stride;
    offsets[i] = add ? offsets[i] + place : place;
  }
}

/// Checks the arrays of indices into `array`. If there are no combinations of them, none is used.
inline void check_advanced(const KernelArgs& args, const kernels::detail::Advanced& way, const Tensor& array,
                           std::span<const Tensor> indices, const char* op) {
  if (way.shape.numel() == 0) return;
  for (int k = 0; k < way.axes.rank(); ++k) {
    const int axis = static_cast<int>(way.axes[k]);
    const int64_t size = array.shape[axis];
    check_indices(args, op, indices[static_cast<size_t>(k)], -size, size, axis);
  }
}

/// Writes the offset in `array` of each combination of the indices, which have been checked, to `memory`,
/// which has way.shape.numel() numbers; returns them with that shape.
inline Tensor locate(const KernelArgs& args, const kernels::detail::Advanced& way, const Tensor& array,
                     std::span<const Tensor> indices, int64_t* memory) {
  const int64_t n = way.shape.numel();
  for (int k = 0; k < way.axes.rank(); ++k) {
    const Tensor index = indices[static_cast<size_t>(k)].broadcast(way.shape);
    const int axis = static_cast<int>(way.axes[k]);
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, locate_indices, memory,
           elements_of(index), dims_of<1>({&index}), n,
           ResolveIndex{array.shape[axis], kernels::IndexMode::raise}, array.strides[axis], k > 0);
  }
  return {memory, DType::i64, way.shape, contiguous_strides(way.shape)};
}

}  // namespace mx::cuda
