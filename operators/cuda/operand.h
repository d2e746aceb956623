// Operand and Result: the arrays of a GPU kernel in the type and layout that the kernel needs.
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

/// An operand that is contiguous.
inline Operand contiguous_operand(const KernelArgs& args, const Tensor& tensor, DType dtype) {
  return Operand(args, tensor, dtype, !tensor.contiguous());
}

/// A contiguous result of type `dtype`: the tensor itself, or memory that store() copies to the tensor.
class Result {
 public:
  Result(const KernelArgs& args, const Tensor& tensor, DType dtype)
      : direct_(tensor.dtype == dtype && tensor.contiguous()),
        target_(tensor),
        computed_(args, dtype, direct_ ? Shape{0} : tensor.shape) {}

  const Tensor& operator*() const { return direct_ ? target_ : *computed_; }
  const Tensor* operator->() const { return &**this; }
  void store(const KernelArgs& args) const {
    if (!direct_) copy_elements(stream_of(args), target_, *computed_);
  }

 private:
  bool direct_;
  Tensor target_;
  Operand computed_;
};

}  // namespace mx::cuda
