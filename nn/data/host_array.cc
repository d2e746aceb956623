#include "nn/data/host_array.h"

#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/kernels/copy.h"

namespace mx::data {

HostArray::HostArray(Shape shape, DType dtype) : shape_(std::move(shape)), dtype_(dtype) {
  const int64_t count = checked_numel(shape_, size_of(dtype), "HostArray");
  memory_ = std::make_unique<std::byte[]>(static_cast<size_t>(count) * size_of(dtype));
}

HostArray::HostArray(const HostArray& other) : HostArray(other.shape_, other.dtype_) {
  if (other.bytes() > 0 && other.memory_ != nullptr)
    std::memcpy(memory_.get(), other.memory_.get(), other.bytes());
}

HostArray& HostArray::operator=(HostArray other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(dtype_, other.dtype_);
  std::swap(memory_, other.memory_);
  return *this;
}

void HostArray::require(DType dtype) const {
  MX_CHECK(dtype == dtype_, InvalidArgument, "[HostArray] expected elements of ", dtype, ", got ", dtype_);
}

Tensor HostArray::tensor() const { return {memory_.get(), dtype_, shape_, contiguous_strides(shape_)}; }

void HostArray::reshape(const Shape& shape) {
  MX_CHECK(checked_numel(shape, size_of(dtype_), "HostArray") == numel(), InvalidArgument,
           "[HostArray] expected a shape of ", numel(), " elements, got ", shape);
  shape_ = shape;
}

HostArray HostArray::to(DType dtype) const {
  HostArray made(shape_, dtype);
  mx::kernels::copy(made.tensor(), tensor());
  return made;
}

NDArray to_ndarray(HostArray&& array) {
  if (array.numel() == 0) return empty(array.shape(), array.dtype());
  const Tensor tensor = array.tensor();
  std::shared_ptr<std::byte[]> memory = std::move(array.memory_);
  array = HostArray();
  return from_external(tensor.data, tensor.dtype, tensor.shape, tensor.strides,
                       [memory = std::move(memory)] {});
}

HostArray to_host_array(const NDArray& array, std::source_location where) try {
  // The copy owns the memory too: if waiting is refused, because this is an operation, the copy runs later.
  const auto made = std::make_shared<HostArray>(array.shape(), array.dtype());
  if (made->numel() == 0) {
    array.wait();
    return std::move(*made);
  }
  const NoGrad guard;
  const Tensor tensor = made->tensor();
  NDArray target = from_external(tensor.data, tensor.dtype, tensor.shape, tensor.strides, [made] {});
  target.copy_from(array, where);
  target.wait();
  return std::move(*made);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::data
