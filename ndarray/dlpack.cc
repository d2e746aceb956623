#include "ndarray/dlpack.h"

#include <memory>

#include "engine/base/check.h"
#include "ndarray/detail/push_on.h"
#include "ndarray/kernels/strided_loop.h"

namespace mx {

using detail::ArrayImpl;
using namespace dlpack;

namespace {

/// The data that an exported tensor owns.
template <class Managed>
struct Export {
  Managed managed;
  NDArray array;
  Shape shape;
  Strides strides;

  static void release(Managed* self) { delete static_cast<Export*>(self->manager_ctx); }
};

template <class Managed>
Managed* export_array(const NDArray& array, DLPackAccess access) {
  ArrayImpl& impl = array.impl();
  const Context context = impl.context();
  MX_CHECK(context.is_cpu() || context.kind == DeviceKind::gpu, InvalidArgument,
           "[to_dlpack] expected an array of the CPU or a GPU, got one on ", context, "; use to(cpu())");
  constexpr bool kSaysSo = requires(Managed & managed) { managed.flags; };
  MX_CHECK(!impl.repeats() || kSaysSo, InvalidArgument,
           "[to_dlpack] expected an array whose elements do not share memory, got a view of shape ",
           impl.shape, " and strides ", impl.strides,
           "; use clone(), or export a versioned tensor, which can be marked read-only");
  // A view that repeats elements must not be written.
  const bool read_only = impl.repeats() || access == DLPackAccess::read_only;
  if (read_only) {
    array.wait();
  } else {
    impl.storage->expect_unseen_writers();
    impl.storage->bump_version();
    mx::detail::wait_for_readers(impl, "to_dlpack");
  }

  auto owner = std::make_unique<Export<Managed>>();
  owner->array = array;
  owner->shape = impl.shape;
  owner->strides = impl.strides;
  Managed& managed = owner->managed;
  managed = {};
  if constexpr (requires { managed.version; }) managed.version = {kMajorVersion, kMinorVersion};
  if constexpr (kSaysSo) managed.flags = read_only ? kFlagReadOnly : 0;
  managed.deleter = &Export<Managed>::release;
  DLTensor& tensor = managed.dl_tensor;
  void* const memory = impl.storage->ensure(nullptr);
  // The address includes the offset, because some consumers ignore byte_offset.
  tensor.data = impl.shape.numel() == 0 ? nullptr : impl.tensor(memory).data;
  tensor.device = context.is_cpu() ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, context.id};
  tensor.ndim = impl.shape.rank();
  tensor.dtype = dlpack::to_dlpack(impl.dtype);
  tensor.shape = owner->shape.begin();
  tensor.strides = owner->strides.begin();
  managed.manager_ctx = owner.get();
  return &owner.release()->managed;
}

template <class Managed>
void give_back(Managed* managed) {
  if (managed->deleter != nullptr) managed->deleter(managed);
}

/// Throws InvalidArgument for bytes other than 0 and 1: to read them as bool is undefined behaviour in C++.
void check_bools(const Tensor& tensor) {
  const Tensor bytes{tensor.data, DType::u8, tensor.shape, tensor.strides};
  const kernels::LoopPlan<1> plan({&bytes});
  kernels::for_each_run<1>(plan, 0, plan.numel, [&](const int64_t* offsets, int64_t n) {
    const uint8_t* const run = bytes.as<uint8_t>() + offsets[0];
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t byte = run[i * plan.strides[0][0]];
      MX_CHECK(byte <= 1, InvalidArgument, "[from_dlpack] expected booleans of 0 or 1, got ", int{byte},
               "; import the memory as u8 and compare it with 0");
    }
  });
}

template <class Managed>
NDArray import_array(Managed* managed, bool read_only) {
  if (managed->deleter == &Export<Managed>::release) {
    // The tensor was made by to_dlpack(): return the same array, so that operations on it stay in order.
    NDArray array = static_cast<Export<Managed>*>(managed->manager_ctx)->array;
    give_back(managed);
    return array;
  }
  const DLTensor& tensor = managed->dl_tensor;
  MX_CHECK(tensor.device.device_type == kDLCPU || tensor.device.device_type == kDLCUDAHost, InvalidArgument,
           "[from_dlpack] expected memory of the host (device type ", int{kDLCPU}, " or ", int{kDLCUDAHost},
           "), got device type ", int{tensor.device.device_type}, "; copy it to the host first");
  const DType dtype = dlpack::from_dlpack(tensor.dtype);
  MX_CHECK(tensor.ndim >= 0 && tensor.ndim <= kMaxRank, InvalidArgument, "[from_dlpack] expected 0 to ",
           kMaxRank, " dimensions, got ", tensor.ndim);
  MX_CHECK(tensor.ndim == 0 || tensor.shape != nullptr, InvalidArgument,
           "[from_dlpack] expected a shape, got null");
  const auto rank = static_cast<size_t>(tensor.ndim);
  const Shape shape(std::span<const int64_t>(tensor.shape, rank));
  checked_numel(shape, size_of(dtype), "from_dlpack");
  const Strides strides = tensor.strides == nullptr ? contiguous_strides(shape)
                                                    : Strides(std::span<const int64_t>(tensor.strides, rank));
  if (shape.numel() == 0) {
    give_back(managed);
    return empty(shape, dtype);
  }
  MX_CHECK(tensor.data != nullptr, InvalidArgument, "[from_dlpack] expected memory for shape ", shape,
           ", got null");
  uintptr_t address = 0;
  MX_CHECK(!__builtin_add_overflow(reinterpret_cast<uintptr_t>(tensor.data), tensor.byte_offset, &address),
           InvalidArgument, "[from_dlpack] expected an offset inside the address space, got ",
           tensor.byte_offset, " bytes from ", static_cast<const void*>(tensor.data));
  void* const data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  MX_CHECK(address % size_of(dtype) == 0, InvalidArgument, "[from_dlpack] expected elements of ", dtype,
           " at multiples of ", size_of(dtype), " bytes, got address ", static_cast<const void*>(data));
  mx::detail::check_extent(data, dtype, shape, strides, "from_dlpack");
  if (dtype == DType::bool_) check_bools({data, dtype, shape, strides});
  NDArray array = from_external(data, dtype, shape, strides, [managed] { give_back(managed); });
  return read_only ? array.clone() : array;
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const NDArray& array, DLPackAccess access) {
  return export_array<DLManagedTensorVersioned>(array, access);
}

DLManagedTensor* to_dlpack_legacy(const NDArray& array) {
  return export_array<DLManagedTensor>(array, DLPackAccess::read_write);
}

NDArray from_dlpack(DLManagedTensorVersioned* tensor) {
  MX_CHECK(tensor != nullptr, InvalidArgument, "[from_dlpack] expected a tensor, got null");
  MX_CHECK(tensor->version.major == kMajorVersion, InvalidArgument, "[from_dlpack] expected DLPack version ",
           kMajorVersion, ".x, got ", tensor->version.major, ".", tensor->version.minor);
  return import_array(tensor, (tensor->flags & kFlagReadOnly) != 0);
}

NDArray from_dlpack(DLManagedTensor* tensor) {
  MX_CHECK(tensor != nullptr, InvalidArgument, "[from_dlpack] expected a tensor, got null");
  return import_array(tensor, false);
}

}  // namespace mx
