// How convolutions are computed on a GPU; a switch for tests and benchmarks.
#pragma once

namespace mx::cuda {

enum class ConvolutionMethod {
  automatic,  ///< by cuDNN, unless the shape suits own kernels better or cuDNN does not compute it
  cudnn,      ///< by cuDNN, unless it does not compute it
  direct,     ///< one thread for each element of the result; for few channels and for many groups
  products,   ///< patches of the images are copied to the columns of a matrix, which cuBLASLt multiplies
};

/// Any thread may call; later convolutions use it.
void set_convolution_method(ConvolutionMethod method);

}  // namespace mx::cuda
