// The windows of poolings: checks at the call, and lists for the kernels. Internal.
#pragma once

#include <cstdint>

#include "ndarray/shape.h"
#include "operators/kernels/pooling.h"
#include "operators/per_axis.h"

namespace mx::detail {

/// The numbers of a pooling of `axes` spatial axes.
struct PoolSizes {
  int axes;
  PerAxis kernel, stride, padding, dilation;
  bool ceil_mode;

  /// Throws InvalidArgument, naming `op`, for numbers that no pooling has.
  void check(const char* op) const;
  int64_t step(int axis) const { return stride[axis] == 0 ? kernel[axis] : stride[axis]; }
  /// Returns the number of windows along an axis. Throws InvalidArgument if the window is too large.
  int64_t windows(const char* op, int axis, int64_t size) const;
  /// `shape`: images, channels and spatial sizes of the input.
  kernels::PoolWindows list(const Shape& shape, bool count_padding) const;
};

/// The windows of adaptive pooling from the spatial sizes of `from` to those of `to`.
kernels::PoolWindows adaptive_windows(const Shape& from, const Shape& to);

}  // namespace mx::detail
