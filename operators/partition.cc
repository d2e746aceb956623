#include "operators/partition.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/indexing.h"

namespace mx {
NDArray partition(const Arg& x, IntArg kth, IntArg axis) try {
  const int64_t size = x.array.shape()[normalize_axis(axis, x.array.rank(), "partition")];
  MX_CHECK(kth >= -size && kth < size, InvalidArgument, "[partition] expected kth from ", -size, " to ",
           size - 1, " (axis ", axis, " of ", x.array.shape(), "), got ", kth);
  return gather(x, argpartition(x, kth, axis), axis);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray lexsort(std::span<const NDArray> keys, IntArg axis, std::source_location where) try {
  MX_CHECK(!keys.empty(), InvalidArgument, "[lexsort] expected at least one key, got none");
  for (const NDArray& key : keys)
    MX_CHECK(key.shape() == keys[0].shape(), InvalidArgument,
             "[lexsort] expected keys of the same shape, got ", keys[0].shape(), " and ", key.shape());
  // Sorting is stable, so the keys are sorted from the least to the most important one.
  NDArray order = argsort({keys[0], where}, axis);
  for (const NDArray& key : keys.subspan(1))
    order = gather({order, where}, argsort({gather({key, where}, order, axis), where}, axis), axis);
  return order;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray lexsort(std::initializer_list<NDArray> keys, IntArg axis, std::source_location where) {
  return lexsort(std::span<const NDArray>(keys.begin(), keys.size()), axis, where);
}

}  // namespace mx
