#include "ndarray/copy.h"

#include "engine/base/check.h"
#include "engine/device/registry.h"
#include "ndarray/cuda_kernels.h"
#include "ndarray/detail/place.h"
#include "ndarray/detail/push_on.h"
#include "ndarray/hooks.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/launch.h"
#include "ndarray/priority.h"

namespace mx::detail {
namespace {

constexpr int64_t kDirectElements = 8192;

void run_copy(const KernelArgs& args) { kernels::copy(args.out[0], args.in[0]); }

const Kernel kCopy = {"copy", run_copy, cuda::copy, kDirectElements};

void launch_copy(ArrayImpl& target, ArrayImpl& source, bool fresh, std::source_location where) {
  ArrayImpl* const in[] = {&source};
  ArrayImpl* const out[] = {&target};
  launch({.kernel = &kCopy,
          .inputs = in,
          .outputs = out,
          .fresh_outputs = fresh ? uint64_t{1} : 0,
          .work = target.shape.numel(),
          .where = where});
}

// Returns the elements broadcast to `shape`. Drops leading dimensions of size 1 if there are too many, so
// that a (1, 3) can be assigned to a (3,).
Ref<ArrayImpl> broadcast(ArrayImpl& array, const Shape& shape, const char* op) {
  if (array.shape == shape) return Ref<ArrayImpl>(&array);
  Shape rest = array.shape;
  Strides strides = array.strides;
  while (rest.rank() > shape.rank() && rest[0] == 1) {
    rest.erase(0);
    strides.erase(0);
  }
  MX_CHECK(rest.rank() <= shape.rank() && broadcast_shapes(rest, shape, op) == shape, InvalidArgument, "[",
           op, "] expected values that broadcast to ", shape, ", got ", array.shape);
  return ArrayImpl::make(array.storage, array.dtype, shape, broadcast_strides(rest, strides, shape),
                         array.offset);
}

// Copies between two devices, or between a device and the host. Precondition: both arrays are contiguous and
// have the same type and size.
void carry(ArrayImpl& target, ArrayImpl& source, std::source_location where) {
  const Context to = target.context(), from = source.context();
  const Context runner = to.is_cpu() ? from : to;
  Engine& engine = current_engine();
  const size_t bytes = static_cast<size_t>(target.shape.numel()) * size_of(target.dtype);
  if (bytes == 0) return;
  target.storage->bump_version();
  PushOptions options{.context = runner, .priority = detail::launch_priority, .name = "copy"};
  options.lane = to.is_cpu() ? StreamKind::copy_out : StreamKind::copy_in;
  options.bytes = bytes;
  const ArrayUse uses[] = {{&target, target.covers_storage() ? Touch::write : Touch::update},
                           {&source, Touch::read}};
  if (engine.recording())  // memory that a captured graph allocates would be freed with the graph
    for (const ArrayUse& use : uses) use.array->storage->ensure(nullptr);
  push_on(
      engine, uses,
      [bytes](const RunContext& c, PushedArrays& arrays) {
        ArrayImpl &target_array = arrays[0], &source_array = arrays[1];
        Stream& stream = *c.stream();
        const auto address = [&stream](ArrayImpl& array) {
          // This stream cannot allocate memory of another device or of the host.
          Stream* const own = array.context() == stream.device().context() ? &stream : nullptr;
          return array.tensor(array.storage->ensure(own)).data;
        };
        void* const t = address(target_array);
        const void* const s = address(source_array);
        stream.device().copy_async(t, target_array.context(), s, source_array.context(), bytes, stream);
      },
      options, where);
}

void assign_values(ArrayImpl& target, ArrayImpl& source, const char* op, std::source_location where);

}  // namespace

Ref<ArrayImpl> new_array(const Shape& shape, DType dtype, Context context, const char* op) {
  const int64_t n = checked_numel(shape, size_of(dtype), op);
  return ArrayImpl::make(Storage::make(static_cast<size_t>(n) * size_of(dtype), context), dtype, shape,
                         contiguous_strides(shape), 0);
}

NDArray copy_to(ArrayImpl& source, DType dtype, Context context, std::source_location where) {
  Ref<ArrayImpl> made = new_array(source.shape, dtype, context, "copy");
  if (one_memory(source.context(), context)) {
    launch_copy(*made, source, true, where);
  } else {
    assign_values(*made, source, "copy", where);
  }
  return NDArray(std::move(made));
}

namespace {

void assign_values(ArrayImpl& target, ArrayImpl& source, const char* op, std::source_location where) {
  Ref<ArrayImpl> from = broadcast(source, target.shape, op);
  if (one_memory(target.context(), source.context())) {
    if (may_overlap(target, *from)) {
      const NDArray before = copy_to(source, source.dtype, source.context(), where);
      from = broadcast(before.impl(), target.shape, op);
    } else if (same_elements(target, *from)) {
      return;
    }
    launch_copy(target, *from, false, where);
    return;
  }
  // The transferred copy is contiguous and has the target's type. It is broadcast only after the transfer, so
  // that no more bytes than necessary are transferred.
  Ref<ArrayImpl> parcel(&source);
  if (!source.contiguous() || source.dtype != target.dtype)
    parcel = copy_to(source, target.dtype, source.context(), where).ref();
  if (target.contiguous() && target.shape == source.shape) return carry(target, *parcel, where);
  const Ref<ArrayImpl> arrived = new_array(source.shape, target.dtype, target.context(), op);
  carry(*arrived, *parcel, where);
  launch_copy(target, *broadcast(*arrived, target.shape, op), false, where);
}

}  // namespace

void assign(ArrayImpl& target, ArrayImpl& source, const char* op, std::source_location where) try {
  check_target(target, op);
  if (!target.recorded() && !source.recorded()) [[likely]]
    return assign_values(target, source, op, where);
  hooks().assigning(target, op);
  assign_values(target, source, op, where);
  hooks().assigned(target, &source);
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace mx::detail
