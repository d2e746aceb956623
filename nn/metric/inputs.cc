#include "nn/metric/inputs.h"

#include <atomic>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/detail/place.h"

namespace mx::metric {

using mx::detail::ArrayImpl;

std::string describe(const NDArray& array) {
  if (!array.defined()) return "nothing";
  return mx::detail::concat(array.dtype(), ' ', array.shape(), " on ", array.context());
}

NDArray input_of(const NDArray& array, DType dtype, const char* op, const char* what,
                 std::source_location where) {
  ArrayImpl& impl = array.impl();
  MX_CHECK((impl.flags.load(std::memory_order_relaxed) & mx::detail::kSymbolic) == 0, InvalidArgument, "[",
           op, "] expected ", what, " with values, got a symbolic array (a node of a graph)",
           mx::detail::called_at(where));
  // A new array of the same memory, which is not recorded.
  NDArray values(ArrayImpl::make(impl.storage, impl.dtype, impl.shape, impl.strides, impl.offset));
  if (values.context().is_cpu() && dtype == values.dtype()) return values;
  return mx::detail::copy_to(values.impl(), dtype, cpu(), where);
}

}  // namespace mx::metric
