// Convolutions on a GPU by cuDNN: the problem that arrays pose, their layouts, and the bias. Internal.
//
// Thread-safety: any thread may call.
#pragma once

#include "ndarray/launch.h"
#include "ndarray/tensor.h"
#include "operators/convolution_shape.h"
#include "operators/cuda/cudnn_plan.h"

namespace mx::cuda {

/// Computes one of the arrays of y = convolution(x, weight) from the others, plus `bias`, which may be null,
/// for each channel of x or y. Returns false if own kernels have to: cuDNN cannot be used or has no engine
/// for the problem. Then the result may have been changed, but nothing else has.
///
/// All arrays have one type. Those that are dense with the channels in the second or, if x and y both are, in
/// the last place are used where they are; others are copied.
bool convolve_by_cudnn(const KernelArgs& args, ConvolutionPart part,
                       const mx::detail::ConvolutionSizes& sizes, const Tensor& x, const Tensor& weight,
                       const Tensor& y, const Tensor* bias);

}  // namespace mx::cuda
