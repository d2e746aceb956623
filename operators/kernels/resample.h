// Resampling of the last axes of an array (operators/interpolate.h), and its transpose, the gradient.
//
// Types: x and y of the same type, f32, f64, f16 or bf16, with any strides. f16 and bf16 are computed in f32
// and rounded once. The terms of a sum have a fixed order, so results do not depend on the number of threads.
//
// Thread-safety: any thread may call.
#pragma once

#include "ndarray/launch.h"
#include "ndarray/tensor.h"
#include "operators/kernels/resample_formulas.h"

namespace mx::kernels {

struct ResampleAxes {
  int count = 0;                   ///< the last axes of the arrays that are resampled: 1 to 3
  formulas::ResampleAxis axis[3];  ///< each as the forward pass sees it
  bool transposed = false;         ///< x is a gradient of the result, y the gradient of the operand
};

/// x and y are (images, channels, spatial...).
void resample(const KernelArgs& args, const Tensor& y, const Tensor& x, const ResampleAxes& axes);

}  // namespace mx::kernels
