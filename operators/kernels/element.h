// A number as an operand of a kernel.
#pragma once

#include <cstddef>
#include <cstring>

#include "ndarray/scalar.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// A number as a tensor of any shape: one element of the given type, with strides of 0. Lives on the kernel's
/// stack; valid as long as this object.
class Element {
 public:
  Element(const Scalar& number, DType dtype, const Shape& shape)
      : tensor_{bytes_, dtype, shape, Strides::filled(shape.rank(), 0)} {
    visit(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T value = number.to<T>();
      std::memcpy(bytes_, &value, sizeof(T));
    });
  }
  Element(const Element&) = delete;
  Element& operator=(const Element&) = delete;
  const Tensor& operator*() const { return tensor_; }
  const std::byte* bytes() const { return bytes_; }

 private:
  alignas(8) std::byte bytes_[8] = {};
  Tensor tensor_;
};

}  // namespace mx::kernels
