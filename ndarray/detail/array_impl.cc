#include "ndarray/detail/array_impl.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include "ndarray/tensor.h"

namespace mx::detail {

bool ArrayImpl::contiguous() const { return Tensor::is_contiguous(shape, strides); }

// The same as may_overlap(), with the dimensions in ascending order of the lengths of their strides.
bool ArrayImpl::may_overlap_in_any_order() const {
  struct Dimension {
    int64_t stride, size;
  };
  std::array<Dimension, kMaxRank> dimensions;
  int n = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] > 1) dimensions[static_cast<size_t>(n++)] = {std::abs(strides[i]), shape[i]};
  }
  const auto used = std::span(dimensions).first(static_cast<size_t>(n));
  std::ranges::sort(used, {}, &Dimension::stride);
  int64_t reach = 0;
  for (const auto& [stride, size] : used) {
    if (stride <= reach) return true;
    reach += (size - 1) * stride;
  }
  return false;
}

ByteRange byte_range(const ArrayImpl& array) {
  int64_t low = array.offset, high = array.offset;
  const int64_t size = static_cast<int64_t>(size_of(array.dtype));
  for (int i = 0; i < array.shape.rank(); ++i) {
    if (array.shape[i] == 0) return {array.offset * size, array.offset * size};
    const int64_t reach = (array.shape[i] - 1) * array.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  return {low * size, (high + 1) * size};
}

bool same_elements(const ArrayImpl& a, const ArrayImpl& b) {
  return a.storage.get() == b.storage.get() && a.offset == b.offset && a.dtype == b.dtype &&
         a.shape == b.shape && a.strides == b.strides;
}

bool may_overlap(const ArrayImpl& a, const ArrayImpl& b) {
  if (a.storage.get() != b.storage.get() || same_elements(a, b)) return false;
  const ByteRange x = byte_range(a), y = byte_range(b);
  return x.first < y.last && y.first < x.last;
}

}  // namespace mx::detail
