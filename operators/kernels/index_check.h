// What the index kernels share: checks of indices, and the way from an index to a distance in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "operators/kernels/index.h"

namespace mx::kernels::detail {

/// From an index that check_indices() has passed to one in [0, size).
struct Resolve {
  int64_t size;
  IndexMode mode;

  int64_t operator()(int64_t index) const {
    if (mode == IndexMode::raise) return index < 0 ? index + size : index;
    if (mode == IndexMode::clip) return index < 0 ? 0 : index >= size ? size - 1 : index;
    const int64_t rest = index % size;
    return rest < 0 ? rest + size : rest;
  }
};

/// Throws InvalidArgument unless the dtype is i32 or i64, and unless, with IndexMode::raise, each index is in
/// [lowest, size). `axis` is that of the array.
void check_indices(const Tensor& indices, int64_t lowest, int64_t size, int axis, IndexMode mode,
                   const char* op);

/// Is `target`, whose name is `what`, of a type for indices up to `largest`?
void check_index_target(const Tensor& target, int64_t largest, const char* what, const char* op);
void check_same_dtype(const Tensor& a, const Tensor& b, const char* op);
void check_shape(const Shape& got, const Shape& expected, const char* what, const char* op);

/// Several arrays of indices at once: where each combination of them points.
struct Advanced {
  Shape axes;        ///< checked
  Shape shape;       ///< of the indices, broadcast together
  int position = 0;  ///< where those dimensions stand among the rest
  std::vector<int64_t>
      offsets;  ///< elements from the array's first one, for each of `shape` in row-major order

  /// Checks shapes only; offsets stay empty.
  Advanced(const Shape& array, std::span<const Tensor> indices, const Shape& axes, int64_t position,
           const char* op);
  /// Checks the indices too, and finds the offsets.
  void locate(const Tensor& array, std::span<const Tensor> indices, IndexMode mode, const char* op);

  /// The rest's dimensions (shape or strides of the array) with `middle` put in position.
  Shape with(const Shape& array, const Shape& middle) const;
  /// The array's dimensions without the axes.
  Shape rest(const Shape& array) const;
};

/// Calls f(tag) with the type of the indices.
template <class F>
void visit_index(DType type, F&& f) {
  if (type == DType::i32) {
    f(mx::detail::TypeTag<int32_t>{});
  } else {
    f(mx::detail::TypeTag<int64_t>{});
  }
}

}  // namespace mx::kernels::detail
