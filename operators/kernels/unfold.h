// Kernels of operators/unfold.h on the CPU.
//
// Types: x, columns and y of one floating-point type, with any strides. Results must not overlap operands.
// Thread-safety: any thread may call.
#pragma once

#include <array>
#include <cstdint>

#include "ndarray/launch.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// The windows along one axis: element i of window o is at o * stride - padding + i * dilation.
struct UnfoldAxis {
  int64_t size = 1, kernel = 1, dilation = 1, padding = 0, stride = 1;
  int64_t windows = 1;
};
using UnfoldAxes = std::array<UnfoldAxis, 2>;

/// columns (images, channels * kernels, windows) from x (images, channels, height, width).
void unfold(const Tensor& columns, const Tensor& x, const UnfoldAxes& axes);
/// y (images, channels, height, width) from columns.
void fold(const KernelArgs& args, const Tensor& y, const Tensor& columns, const UnfoldAxes& axes);

}  // namespace mx::kernels
