#include "operators/pooling_windows.h"

#include <algorithm>

#include "engine/base/check.h"
#include "operators/pool_interval.h"

namespace mx::detail {
namespace {

kernels::PoolAxis one_window() { return {{0}, {1}, {1}, 1}; }

}  // namespace

void PoolSizes::check(const char* op) const {
  kernel.check(op, "kernel", axes, 1);
  stride.check(op, "stride", axes, 0);
  padding.check(op, "padding", axes, 0);
  dilation.check(op, "dilation", axes, 1);
  for (int a = 0; a < axes; ++a)
    MX_CHECK(padding[a] <= (dilation[a] * (kernel[a] - 1) + 1) / 2, InvalidArgument, "[", op,
             "] expected a padding of at most half of the kernel, got ", to_string(padding),
             " for a kernel of ", to_string(kernel));
}

int64_t PoolSizes::windows(const char* op, int axis, int64_t size) const {
  const int64_t reach = dilation[axis] * (kernel[axis] - 1) + 1, room = size + 2 * padding[axis] - reach;
  const int64_t s = step(axis);
  MX_CHECK(size > 0 && (room >= 0 || (ceil_mode && room + s > 0)), InvalidArgument, "[", op,
           "] expected a window that is not larger than the padded image, got a kernel of ", kernel[axis],
           " with dilation ", dilation[axis], " for size ", size, " with padding ", padding[axis]);
  int64_t count = (room + (ceil_mode ? s - 1 : 0)) / s + 1;
  // A window that starts beyond the image and the padding before it has no elements.
  if (ceil_mode && (count - 1) * s >= size + padding[axis]) --count;
  return count;
}

kernels::PoolWindows PoolSizes::list(const Shape& shape, bool count_padding) const {
  kernels::PoolWindows w;
  w.axes.fill(one_window());
  for (int a = 0; a < axes; ++a) {
    const int64_t size = shape[2 + a], pad = padding[a], gap = dilation[a], k = kernel[a];
    kernels::PoolAxis axis;
    axis.gap = gap;
    const int64_t count = windows("pool", a, size);
    for (int64_t o = 0; o < count; ++o) {
      const PoolInterval window = pool_interval(o, step(a), pad, gap, k, size, count_padding);
      axis.first.push_back(window.first);
      axis.count.push_back(window.count);
      axis.divisor.push_back(window.divisor);
    }
    w.axes[static_cast<size_t>(3 - axes + a)] = std::move(axis);
  }
  return w;
}

kernels::PoolWindows adaptive_windows(const Shape& from, const Shape& to) {
  kernels::PoolWindows w;
  w.axes.fill(one_window());
  const int axes = from.rank() - 2;
  for (int a = 0; a < axes; ++a) {
    const int64_t size = from[2 + a], count = to[2 + a];
    kernels::PoolAxis axis;
    for (int64_t o = 0; o < count; ++o) {
      const PoolInterval window = adaptive_interval(o, size, count);
      axis.first.push_back(window.first);
      axis.count.push_back(window.count);
      axis.divisor.push_back(window.divisor);
    }
    w.axes[static_cast<size_t>(3 - axes + a)] = std::move(axis);
  }
  return w;
}

}  // namespace mx::detail
