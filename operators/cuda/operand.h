// Operand: an input of a GPU kernel in the type and layout that the kernel needs.
#pragma once

#include "ndarray/cuda/copy.h"
#include "ndarray/cuda/kernel.cuh"
#include "operators/scratch.h"

namespace mx::cuda {

/// A tensor itself, or a contiguous copy of it in memory that lasts for the kernel.
class Operand {
 public:
  /// `copied`: makes a copy even if the tensor has the type `dtype`.
  Operand(const KernelArgs& args, const Tensor& tensor, DType dtype, bool copied = false)
      : tensor_(tensor),
        memory_(args,
                tensor.dtype == dtype && !copied ? 0 : static_cast<size_t>(tensor.numel()) * size_of(dtype)) {
    if (tensor.dtype == dtype && !copied) return;
    tensor_ = {memory_.data(), dtype, tensor.shape, contiguous_strides(tensor.shape)};
    copy_elements(stream_of(args), tensor_, tensor);
  }
  /// Uninitialised elements.
  Operand(const KernelArgs& args, DType dtype, const Shape& shape)
      : memory_(args, static_cast<size_t>(shape.numel()) * size_of(dtype)) {
    tensor_ = {memory_.data(), dtype, shape, contiguous_strides(shape)};
  }

  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }

 private:
  Tensor tensor_;
  Scratch memory_;
};

}  // namespace mx::cuda
