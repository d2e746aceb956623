// The windows of unfold() and fold(), from their attributes. Internal: shared by the kernels of the CPU and
// of CUDA.
#pragma once

#include <cstdint>

#include "engine/base/check.h"
#include "operators/kernels/unfold.h"
#include "operators/unfold.h"

namespace mx::detail {

/// The windows of images of these sizes. Throws InvalidArgument for numbers that no window has.
template <class A>
kernels::UnfoldAxes unfold_axes(const char* op, const A& attrs, int64_t height, int64_t width) {
  attrs.kernel.check(op, "kernel", 2, 1);
  attrs.dilation.check(op, "dilation", 2, 1);
  attrs.padding.check(op, "padding", 2, 0);
  attrs.stride.check(op, "stride", 2, 1);
  kernels::UnfoldAxes axes;
  for (int a = 0; a < 2; ++a) {
    const int64_t size = a == 0 ? height : width;
    axes[a] = {size, attrs.kernel[a], attrs.dilation[a], attrs.padding[a], attrs.stride[a], 0};
    const int64_t padded = size + 2 * axes[a].padding, reach = (axes[a].kernel - 1) * axes[a].dilation + 1;
    MX_CHECK(reach <= padded, InvalidArgument, "[", op, "] expected a window of at most the padded image, ",
             padded, " along spatial axis ", a, ", got ", reach);
    axes[a].windows = (padded - reach) / axes[a].stride + 1;
  }
  return axes;
}

}  // namespace mx::detail
