#include "operators/partition.h"

#include "engine/base/check.h"
#include "operators/indexing.h"
#include "operators/sorting.h"

namespace mx {
namespace {

void check_kth(const char* op, const NDArray& x, int64_t kth, int64_t axis) {
  const int64_t size = x.shape()[normalize_axis(axis, x.rank(), op)];
  MX_CHECK(kth >= -size && kth < size, InvalidArgument, "[", op, "] expected kth from ", -size, " to ",
           size - 1, " (axis ", axis, " of ", x.shape(), "), got ", kth);
}

}  // namespace

NDArray partition(const Arg& x, int64_t kth, int64_t axis) {
  check_kth("partition", x.array, kth, axis);
  return sort(x, axis);
}

NDArray argpartition(const Arg& x, int64_t kth, int64_t axis) {
  check_kth("argpartition", x.array, kth, axis);
  return argsort(x, axis);
}

NDArray lexsort(std::span<const NDArray> keys, int64_t axis, std::source_location where) {
  MX_CHECK(!keys.empty(), InvalidArgument, "[lexsort] expected at least one key, got none");
  for (const NDArray& key : keys)
    MX_CHECK(key.shape() == keys[0].shape(), InvalidArgument,
             "[lexsort] expected keys of the same shape, got ", keys[0].shape(), " and ", key.shape());
  // Sorting is stable, so the keys are sorted from the least to the most important one.
  NDArray order = argsort({keys[0], where}, axis);
  for (const NDArray& key : keys.subspan(1))
    order = gather({order, where}, argsort({gather({key, where}, order, axis), where}, axis), axis);
  return order;
}

NDArray lexsort(std::initializer_list<NDArray> keys, int64_t axis, std::source_location where) {
  return lexsort(std::span<const NDArray>(keys.begin(), keys.size()), axis, where);
}

}  // namespace mx
