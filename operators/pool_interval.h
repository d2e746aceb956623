// Which elements of an image a window of a pooling has along one axis; for the kernels of every device.
// Internal.
#pragma once

#include <cstdint>

namespace mx::detail {

/// The elements first + i * gap for i in [0, count), which are all inside of the image.
struct PoolInterval {
  int64_t first = 0, count = 0;
  int64_t divisor = 1;  ///< the axis's factor of the number by which a sum is divided
};

/// Window `o` of a pooling. `count_padding`: elements of the padding count for the divisor.
constexpr PoolInterval pool_interval(int64_t o, int64_t step, int64_t pad, int64_t gap, int64_t kernel,
                                     int64_t size, bool count_padding) {
  const int64_t start = o * step - pad;
  const int64_t before = start < 0 ? (-start + gap - 1) / gap : 0;
  const int64_t inside = size > start ? (size - start + gap - 1) / gap : 0;
  const int64_t reach = (kernel < inside ? kernel : inside) - before, elements = reach > 0 ? reach : 0;
  const int64_t end = start + kernel < size + pad ? start + kernel : size + pad;
  return {elements > 0 ? start + before * gap : 0, elements, count_padding ? end - start : elements};
}

/// Window `o` of `count` that cover `size` elements. Multiplies no sizes, so it cannot overflow.
constexpr PoolInterval adaptive_interval(int64_t o, int64_t size, int64_t count) {
  const int64_t whole = size / count, rest = size % count;
  const int64_t first = o * whole + o * rest / count,
                end = (o + 1) * whole + ((o + 1) * rest + count - 1) / count;
  return {first, end - first, end - first};
}

}  // namespace mx::detail
