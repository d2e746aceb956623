// Tensor: a kernel's view of an array: an address, a type, sizes and strides. It owns nothing.
#pragma once

#include <cstdint>

#include "ndarray/dtype.h"
#include "ndarray/shape.h"

namespace mx {

/// Returns the address of an element, counted from the one at `data`; null if there is no memory.
inline void* element_at(const void* data, DType type, int64_t index) {
  return data == nullptr
             ? nullptr
             : static_cast<char*>(const_cast<void*>(data)) + index * static_cast<int64_t>(size_of(type));
}

struct Tensor {
  void* data = nullptr;  ///< the first element, at an address that is valid in the kernel; may be null
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;  ///< in elements

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  int rank() const { return shape.rank(); }
  int64_t numel() const { return shape.numel(); }
  /// Returns true if the elements are in row-major order without gaps. Dimensions of size 1 do not count.
  bool contiguous() const { return is_contiguous(shape, strides); }

  /// Returns `size` entries from `first` on along an axis, over the same memory.
  Tensor narrowed(int axis, int64_t first, int64_t size) const {
    Tensor result = *this;
    result.shape[axis] = size;
    result.data = element_at(data, dtype, first * strides[axis]);
    return result;
  }

  /// Returns the same memory broadcast to `target`. Precondition: this shape broadcasts to it.
  Tensor broadcast(const Shape& target) const {
    if (shape == target) return *this;
    return {data, dtype, target, broadcast_strides(shape, strides, target)};
  }

  static bool is_contiguous(const Shape& shape, const Strides& strides) {
    int64_t expected = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      if (shape[i] == 0) return true;
      if (shape[i] != 1 && strides[i] != expected) return false;
      expected *= shape[i];
    }
    return true;
  }
};

}  // namespace mx
