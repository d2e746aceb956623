#include "ndarray/detail/array_impl.h"

#include "ndarray/tensor.h"

namespace mx::detail {

bool ArrayImpl::contiguous() const { return Tensor::is_contiguous(shape, strides); }

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
