// Shared by the index kernels: checks of indices, and the conversion of indices to offsets in memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "operators/kernels/index.h"

namespace mx::kernels::detail {

/// Converts an index that check_indices() has accepted to one in [0, size).
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

/// Throws InvalidArgument if the dtype is neither i32 nor i64, or, with IndexMode::raise, if an index is not
/// in [lowest, size). `axis` is that of the array.
void check_indices(const Tensor& indices, int64_t lowest, int64_t size, int axis, IndexMode mode,
                   const char* op);

/// Where offsets into a list of entries must end.
enum class OffsetsEnd : uint8_t {
  exact,    ///< with the number of entries
  at_most,  ///< with it or before
};
/// Throws InvalidArgument unless the offsets begin with 0, ascend, and end with the number of entries; names
/// the first wrong one. There may be none if `end` is at_most and there are no entries. `what` is their name
/// in the message.
void check_offsets(std::span<const int64_t> offsets, int64_t entries, OffsetsEnd end, const char* what,
                   const char* op);

/// Throws InvalidArgument unless the type of `target` can hold indices up to `largest`. `what` is target's
/// name in the message.
void check_index_target(const Tensor& target, int64_t largest, const char* what, const char* op);
void check_same_dtype(const Tensor& a, const Tensor& b, const char* op);
void check_shape(const Shape& got, const Shape& expected, const char* what, const char* op);

/// Several arrays of indices at once, and the offset of each combination of them.
struct Advanced {
  Shape axes;        ///< checked
  Shape shape;       ///< of the indices after broadcasting
  int position = 0;  ///< position of those dimensions among the remaining ones
  std::vector<int64_t>
      offsets;  ///< in elements from the array's first one, for each element of `shape` in row-major order

  /// Checks shapes only; `offsets` stays empty.
  Advanced(const Shape& array, std::span<const Tensor> indices, const Shape& axes, int64_t position,
           const char* op);
  /// Checks the indices too.
  void check(const Tensor& array, std::span<const Tensor> indices, IndexMode mode, const char* op) const;
  /// Checks the indices and computes the offsets.
  void locate(const Tensor& array, std::span<const Tensor> indices, IndexMode mode, const char* op);

  /// Returns the remaining dimensions of `array`, a list of sizes or strides, with `middle` inserted at
  /// `position`.
  Shape with(const Shape& array, const Shape& middle) const;
  /// Returns the dimensions of `array` without the axes.
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
