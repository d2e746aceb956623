// The sizes of convolutions: checks at the call, and the problems that the kernels solve. Internal.
#pragma once

#include <cstdint>

#include "ndarray/shape.h"
#include "ndarray/tensor.h"
#include "operators/kernels/convolution.h"
#include "operators/per_axis.h"

namespace mx::detail {

/// The numbers of a convolution of up to three spatial axes.
struct ConvolutionSizes {
  int axes = 1;
  PerAxis stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;

  /// Throws InvalidArgument, naming `op`, for numbers that no convolution of `rank` dimensions has.
  void check(const char* op, int rank) const;
  /// The size of a convolution's result along an axis; 0 or less if the kernel is too large.
  int64_t forward(int axis, int64_t size, int64_t kernel) const;
  /// The size of a transposed convolution's result along an axis, without output padding.
  int64_t backward(int axis, int64_t size, int64_t kernel) const;
};

/// The correlation that computes y from x and weight, or one of them from the others. y and weight may be
/// null.
kernels::Correlation forward_correlation(const ConvolutionSizes& sizes, const Tensor& x, const Tensor& weight,
                                         const Tensor& y);

/// Calls f(correlation) for the correlations that together compute x, the result of a transposed convolution
/// of y. Each computes the positions of x with equal residues modulo the stride.
template <class F>
void each_backward_correlation(const ConvolutionSizes& sizes, const Tensor& y, const Tensor& weight,
                               const Tensor& x, const F& f);

kernels::Correlation backward_correlation(const ConvolutionSizes& sizes, const Tensor& y,
                                          const Tensor& weight, const Tensor& x,
                                          const kernels::Spatial& residue);

template <class F>
void each_backward_correlation(const ConvolutionSizes& sizes, const Tensor& y, const Tensor& weight,
                               const Tensor& x, const F& f) {
  const auto stride = [&](int axis) { return axis < sizes.axes ? sizes.stride[axis] : 1; };
  for (int64_t i = 0; i < stride(0); ++i)
    for (int64_t j = 0; j < stride(1); ++j)
      for (int64_t k = 0; k < stride(2); ++k) f(backward_correlation(sizes, y, weight, x, {i, j, k}));
}

}  // namespace mx::detail
