// Temporary: memory for the duration of one kernel call on the CPU.
#pragma once

#include <cstddef>
#include <memory>

#include "ndarray/kernels/copy.h"
#include "ndarray/tensor.h"

namespace mx::detail {

/// A contiguous tensor that owns its uninitialized memory.
class Temporary {
 public:
  Temporary(DType dtype, const Shape& shape)
      : memory_(new std::byte[static_cast<size_t>(shape.numel()) * size_of(dtype)]),
        tensor_{memory_.get(), dtype, shape, contiguous_strides(shape)} {}
  const Tensor& operator*() const { return tensor_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  Tensor tensor_;
};

/// A tensor in a given type: the tensor itself if it already has that type, else a converted copy.
class Converted {
 public:
  Converted(const Tensor& tensor, DType dtype) : tensor_(tensor) {
    if (tensor.dtype == dtype) return;
    copy_ = std::make_unique<Temporary>(dtype, tensor.shape);
    tensor_ = **copy_;
    kernels::copy(tensor_, tensor);
  }
  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }

 private:
  std::unique_ptr<Temporary> copy_;
  Tensor tensor_;
};

}  // namespace mx::detail
