#include "executor/autograd/own_memory.h"

#include <algorithm>

#include "executor/autograd/node.h"
#include "ndarray/grad_mode.h"

namespace mx::detail {
namespace {

// Returns true if the array, or one of which it is a view, is the result of indexing with arrays, and another
// handle to that result may exist. Its memory may be younger than the handle, because it is filled when it is
// first used.
bool filled_late(const ArrayImpl& array) {
  for (const ArrayImpl* a = &array; a != nullptr; a = a->base.get())
    if (a->deferred && a->refs.load(std::memory_order_relaxed) > 1) return true;
  return false;
}

}  // namespace

NDArray own_memory(const NDArray& result, uint64_t begin, std::span<const NDArray> before) {
  const ArrayImpl& array = result.impl();
  const Storage& storage = *array.storage;
  const bool whole = static_cast<size_t>(array.shape.numel()) * size_of(array.dtype) == storage.bytes();
  const bool own = storage.made_since(begin) && whole && !array.may_overlap() && !filled_late(array) &&
                   std::ranges::none_of(
                       before, [&](const NDArray& other) { return other.impl().storage.get() == &storage; });
  if (own) return NDArray(without_edge(array));
  const NoGrad pause;
  return result.clone();
}

}  // namespace mx::detail
