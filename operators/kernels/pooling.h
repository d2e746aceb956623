// Pooling kernels on the CPU: the largest element or the mean of windows, and their gradients.
//
// A window is a product of intervals, one for each of three axes: depth, height, width. Images with fewer
// spatial axes have leading axes of size 1. f16 and bf16 are computed in f32 and rounded once. NaN passes.
//
// Method: a row of results is computed in two passes, first down the columns of the rows of its windows, then
// along the row, so that most of the work is a loop over adjacent elements.
//
// Thread-safety: any thread may call. Results must not overlap operands.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// The windows along one axis. Window o has the elements first[o] + i * gap for i in [0, count[o]), which are
/// all inside of the image.
struct PoolAxis {
  std::vector<int64_t> first, count;
  std::vector<int64_t> divisor;  ///< the axis's factor of the number by which a sum is divided
  int64_t gap = 1;
};

struct PoolWindows {
  std::array<PoolAxis, 3> axes;
  double divisor = 0;  ///< divides every sum if it is not 0; otherwise the product of the axes' divisors does
};

/// y and indices (i64) are (images, channels, windows...), x is (images, channels, spatial...). An index is
/// the position of the largest element in its plane, counted in row-major order. Of equal elements the first
/// counts, of several NaNs the last one. A window without elements gives -infinity.
void max_pool(const Tensor& y, const Tensor& indices, const Tensor& x, const PoolWindows& windows);
/// Adds each element of dy to dx at its index. Throws InvalidArgument for an index out of range, after which
/// dx is undefined.
void max_pool_backward(const Tensor& dx, const Tensor& dy, const Tensor& indices);

void avg_pool(const Tensor& y, const Tensor& x, const PoolWindows& windows);
/// The transpose of avg_pool: from y's shape to x's.
void avg_pool_backward(const Tensor& dx, const Tensor& dy, const PoolWindows& windows);

}  // namespace mx::kernels
