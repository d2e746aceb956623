#include "operators/pooling_windows.h"

#include <algorithm>

#include "engine/base/check.h"

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
      const int64_t start = o * step(a) - pad;
      const int64_t before = start < 0 ? (-start + gap - 1) / gap : 0;
      const int64_t inside = size > start ? (size - start + gap - 1) / gap : 0;
      const int64_t elements = std::max<int64_t>(0, std::min(k, inside) - before);
      axis.first.push_back(elements > 0 ? start + before * gap : 0);
      axis.count.push_back(elements);
      axis.divisor.push_back(count_padding ? std::min(start + k, size + pad) - start : elements);
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
      // o * size / count without the product, which could overflow.
      const int64_t whole = size / count, rest = size % count;
      const int64_t first = o * whole + o * rest / count,
                    end = (o + 1) * whole + ((o + 1) * rest + count - 1) / count;
      axis.first.push_back(first);
      axis.count.push_back(end - first);
      axis.divisor.push_back(end - first);
    }
    w.axes[static_cast<size_t>(3 - axes + a)] = std::move(axis);
  }
  return w;
}

}  // namespace mx::detail
