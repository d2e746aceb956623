// Indices along axes, shared by the kernels that read and write at them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/cuda/kernel_errors.cuh"
#include "ndarray/cuda/strided.cuh"
#include "operators/cuda/group.cuh"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/index_check.h"
#include "operators/scratch.h"

namespace mx::cuda {

inline constexpr int64_t kOffsets = -1;

/// Converts an index to one in [0, size). With the size kOffsets it is already an offset, and stays as it is.
struct ResolveIndex {
  int64_t size;
  kernels::IndexMode mode;
  bool from_end = true;  ///< negative indices count from the end; false: they are errors

  /// An index that is an error. operator() makes it the nearest one in range, so that no memory beyond the
  /// array is touched.
  __device__ bool refuses(int64_t index) const {
    return mode == kernels::IndexMode::raise && size != kOffsets &&
           (index < (from_end ? -size : 0) || index >= size);
  }
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

/// Throws InvalidArgument if there are indices for an axis without elements.
inline void check_axis(const char* op, int64_t size, int64_t indices) {
  MX_CHECK(size != 0 || indices == 0, InvalidArgument, "[", op,
           "] expected no indices for an axis of size 0, got ", indices);
}

/// offsets[i] = (add ? offsets[i] : 0) + index[i] * stride, for the n elements of the indices in row-major
/// order. A bad index is noted at first_place + i.
inline __global__ void __launch_bounds__(kBlock)
    locate_indices(int64_t* offsets, Elements index, Dims<1> dims, int64_t n, ResolveIndex resolve,
                   int64_t stride, bool add, KernelError* bad, int64_t first_place) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t value = load<int64_t>(index, dims.offset(0, i)), place = resolve(value) * stride;
    if (resolve.refuses(value)) note_error(bad, first_place + i, value);
    offsets[i] = add ? offsets[i] + place : place;
  }
}

/// The errors of indices of shape `shape`, which are noted at their places in row-major order.
inline BadValues::Text bad_indices(const char* op, int64_t size, int axis, const Shape& shape) {
  return [=](const KernelError& e) {
    return kernels::detail::bad_index(op, -size, size, axis, e.value,
                                      kernels::detail::position_of(e.place, shape));
  };
}

/// The errors of several arrays of indices that are broadcast to way.shape: array k begins at the place k *
/// n.
inline BadValues::Text bad_indices(const char* op, const kernels::detail::Advanced& way, const Tensor& array,
                                   std::span<const Tensor> indices) {
  std::vector<Shape> shapes;
  for (const Tensor& index : indices) shapes.push_back(index.shape);
  return [=, axes = way.axes, all = way.shape, sizes = array.shape](const KernelError& e) {
    const int64_t n = all.numel();
    const auto k = static_cast<int>(e.place / n);
    const int axis = static_cast<int>(axes[k]);
    // The first place of an index that is broadcast has the position 0 along what it is broadcast along.
    const Shape& own = shapes[static_cast<size_t>(k)];
    Shape position = kernels::detail::position_of(e.place % n, all);
    while (position.rank() > own.rank()) position.erase(0);
    return kernels::detail::bad_index(op, -sizes[axis], sizes[axis], axis, e.value, position);
  };
}

/// Writes the offset in `array` of each combination of the indices to `memory`, which has way.shape.numel()
/// numbers; returns them with that shape. No axis may have size 0. `op` is the name in messages.
inline Tensor locate(const KernelArgs& args, const kernels::detail::Advanced& way, const Tensor& array,
                     std::span<const Tensor> indices, kernels::IndexMode mode, int64_t* memory,
                     const char* op) {
  const int64_t n = way.shape.numel();
  BadValues bad(args, bad_indices(op, way, array, indices));
  for (int k = 0; k < way.axes.rank(); ++k) {
    const Tensor index = indices[static_cast<size_t>(k)].broadcast(way.shape);
    const int axis = static_cast<int>(way.axes[k]);
    check_axis("index", array.shape[axis], n);
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, locate_indices, memory,
           elements_of(index), dims_of<1>({&index}), n, ResolveIndex{array.shape[axis], mode},
           array.strides[axis], k > 0, bad.word(), k * n);
  }
  bad.check();
  return {memory, DType::i64, way.shape, contiguous_strides(way.shape)};
}

}  // namespace mx::cuda
