// HostArray: numbers in host memory, with a shape and a type. Sample: the fields of one sample.
//
// Samples are decoded, transformed and collated as host arrays, inside operations of the engine. An NDArray
// would be the wrong type there: its operations are pushed, and an operation must not wait for others.
//
// Value types: a copy has its own numbers. Thread-safety: that of a standard container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/dtype.h"
#include "ndarray/ndarray.h"
#include "ndarray/tensor.h"

namespace mx::data {

class HostArray {
 public:
  /// Makes an array of shape (0,).
  HostArray() : HostArray(Shape{0}, u8) {}
  /// Makes an array of zeros. Throws InvalidArgument for sizes that are negative or that no memory holds.
  explicit HostArray(Shape shape, DType dtype = f32);
  HostArray(const HostArray& other);
  HostArray(HostArray&&) noexcept = default;
  HostArray& operator=(HostArray other) noexcept;
  ~HostArray() = default;

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t numel() const { return shape_.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }

  std::byte* raw() { return memory_.get(); }
  const std::byte* raw() const { return memory_.get(); }
  /// Returns the elements, contiguous and in row-major order. Throws InvalidArgument for another type.
  template <class T>
  T* data() {
    require(dtype_of<T>);
    return reinterpret_cast<T*>(memory_.get());
  }
  template <class T>
  const T* data() const {
    require(dtype_of<T>);
    return reinterpret_cast<const T*>(memory_.get());
  }
  /// Returns a view of the memory, which must not outlive the array.
  Tensor tensor() const;

  /// Gives the same elements another shape. Throws InvalidArgument if the numbers of elements differ.
  void reshape(const Shape& shape);
  /// Returns a copy of another type, rounded as NDArray::to() does.
  HostArray to(DType dtype) const;

 private:
  friend NDArray to_ndarray(HostArray&& array);
  void require(DType dtype) const;

  Shape shape_;
  DType dtype_;
  std::unique_ptr<std::byte[]> memory_;
};

/// Makes an array of shape (n,).
template <class T>
HostArray host_array(std::span<const T> values) {
  HostArray made(Shape{static_cast<int64_t>(values.size())}, dtype_of<T>);
  if (!values.empty()) std::memcpy(made.raw(), values.data(), values.size_bytes());
  return made;
}
template <class T>
HostArray host_array(const std::vector<T>& values) {
  return host_array(std::span<const T>(values));
}
/// Makes an array of rank 0.
template <class T>
HostArray host_scalar(T value) {
  HostArray made(Shape{}, dtype_of<T>);
  std::memcpy(made.raw(), &value, sizeof(value));
  return made;
}

/// Returns an array on the CPU that takes over the memory; nothing is copied.
NDArray to_ndarray(HostArray&& array);
/// Returns a copy of the elements, from any device. Waits for the values; throws the error if their operation
/// has failed. So it must not be called inside an operation.
HostArray to_host_array(const NDArray& array, std::source_location where = std::source_location::current());

/// The fields of one sample, or of one batch.
using Sample = std::vector<HostArray>;

}  // namespace mx::data
