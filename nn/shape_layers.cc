#include "nn/shape_layers.h"

#include "engine/base/check.h"
#include "nn/detail/call_site.h"

namespace mx::nn {

NDArray Flatten::forward(const NDArray& x) {
  if (x.rank() == 0 && first_ <= 0 && last_ <= 0) return x.reshape({1}, detail::call_site());
  const int first = normalize_axis(first_, x.rank(), "Flatten"),
            last = normalize_axis(last_, x.rank(), "Flatten");
  MX_CHECK(first <= last, InvalidArgument, "[Flatten] expected a first dimension ", first_,
           " that is not after the last one, ", last_, ", got shape ", x.shape());
  Shape shape;
  int64_t together = 1;
  for (int d = 0; d < x.rank(); ++d) {
    if (d >= first && d <= last) together *= x.shape()[d];
    if (d < first || d > last) shape.push_back(x.shape()[d]);
    if (d == last) shape.push_back(together);
  }
  return x.reshape(shape, detail::call_site());
}

std::string Flatten::extra() const { return mx::detail::concat("first=", first_, ", last=", last_); }

NDArray Unflatten::forward(const NDArray& x) {
  const int axis = normalize_axis(axis_, x.rank(), "Unflatten");
  const int64_t size = x.shape()[axis];
  int64_t known = 1;
  int unknown = 0;
  for (int64_t part : sizes_) (part == -1 ? unknown += 1 : known *= part);
  MX_CHECK(unknown <= 1 && (unknown == 0 ? known == size : known > 0 && size % known == 0), InvalidArgument,
           "[Unflatten] expected a dimension whose size is the product of ", sizes_, ", got ", size,
           " in shape ", x.shape());
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (d != axis) shape.push_back(x.shape()[d]);
    for (int i = 0; d == axis && i < sizes_.rank(); ++i)
      shape.push_back(sizes_[i] == -1 ? size / known : sizes_[i]);
  }
  return x.reshape(shape, detail::call_site());
}

std::string Unflatten::extra() const { return mx::detail::concat("axis=", axis_, ", sizes=", sizes_); }

}  // namespace mx::nn
