// Copies between arrays of one GPU, for kernels that need one in another type or layout.
#pragma once

#include "ndarray/cuda/kernel.cuh"
#include "ndarray/tensor.h"

namespace mx::cuda {

/// to[i] = from[i], converted as kernels::copy() does; same shape, any strides, no overlap.
void copy_elements(NativeStream stream, const Tensor& to, const Tensor& from);

}  // namespace mx::cuda
