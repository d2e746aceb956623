// Creation of arrays: filled with numbers, or from host memory.
#include <cmath>
#include <cstring>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/cuda_kernels.h"
#include "ndarray/detail/create_attrs.h"
#include "ndarray/detail/place.h"
#include "ndarray/hooks.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/launch.h"
#include "ndarray/ndarray.h"

namespace mx {

using detail::ArrayImpl;
using detail::ConstantAttrs;
using detail::RangeAttrs;
using detail::Ref;

namespace {

constexpr int64_t kDirectElements = 8192;

void run_fill(const KernelArgs& args) { kernels::fill(args.out[0], args.attr<ConstantAttrs>().value); }
const Kernel kFill = {"fill", run_fill, cuda::fill, kDirectElements, false};

void launch_fill(ArrayImpl& target, const Scalar& value, bool fresh, std::source_location where) {
  const Attrs attrs = ConstantAttrs{value};
  ArrayImpl* const out[] = {&target};
  launch({.kernel = &kFill,
          .attrs = &attrs,
          .outputs = out,
          .fresh_outputs = fresh ? uint64_t{1} : 0,
          .work = target.shape.numel(),
          .where = where});
}

void run_range(const KernelArgs& args) {
  const auto& range = args.attr<RangeAttrs>();
  const Tensor& out = args.out[0];
  visit(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const p = out.as<T>();
    parallel_for(out.numel(), kernels::kLoopGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (range.floating) {
          p[i] = convert<T>(range.start.real() + static_cast<double>(i) * range.step.real());
        } else {
          // i * step may overflow even if the sum does not; unsigned arithmetic wraps to the right result.
          const uint64_t way = static_cast<uint64_t>(i) * static_cast<uint64_t>(range.step.integer());
          p[i] = convert<T>(static_cast<int64_t>(static_cast<uint64_t>(range.start.integer()) + way));
        }
      }
    });
  });
}
const Kernel kRange = {"arange", run_range, cuda::arange, kDirectElements};

NDArray range(int64_t count, const RangeAttrs& range_attrs, DType dtype, Context context, const char* op,
              std::source_location where) {
  Ref<ArrayImpl> made = detail::new_array({count}, dtype, context, op);
  const Attrs attrs = range_attrs;
  ArrayImpl* const out[] = {made.get()};
  launch({.kernel = &kRange,
          .attrs = &attrs,
          .outputs = out,
          .fresh_outputs = 1,
          .work = count,
          .where = where});
  return NDArray(std::move(made));
}

NDArray filled(const char* op, const Shape& shape, const Scalar& value, DType dtype, Context context,
               std::source_location where) try {
  check_fits(value, dtype, op);
  Ref<ArrayImpl> made = detail::new_array(shape, dtype, context, op);
  launch_fill(*made, value, true, where);
  return NDArray(std::move(made));
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace

NDArray& NDArray::fill_(Scalar value, std::source_location where) try {
  ArrayImpl& target = impl();
  detail::check_target(target, "fill_");
  check_fits(value, target.dtype, "fill_");
  const bool recorded = target.recorded();
  if (recorded) detail::hooks().assigning(target, "fill_");
  launch_fill(target, value, false, where);
  if (recorded) detail::hooks().assigned(target, nullptr);
  return *this;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray empty(const Shape& shape, DType dtype, Context context, std::source_location where) try {
  return NDArray(detail::new_array(shape, dtype, context, "empty"));
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray full(const Shape& shape, Scalar value, DType dtype, Context context, std::source_location where) {
  return filled("full", shape, value, dtype, context, where);
}

NDArray zeros(const Shape& shape, DType dtype, Context context, std::source_location where) {
  return filled("zeros", shape, 0, dtype, context, where);
}
NDArray ones(const Shape& shape, DType dtype, Context context, std::source_location where) {
  return filled("ones", shape, 1, dtype, context, where);
}
NDArray empty_like(const NDArray& a, std::source_location where) {
  return empty(a.shape(), a.dtype(), a.context(), where);
}
NDArray zeros_like(const NDArray& a, std::source_location where) { return full_like(a, 0, where); }
NDArray ones_like(const NDArray& a, std::source_location where) { return full_like(a, 1, where); }
NDArray full_like(const NDArray& a, Scalar value, std::source_location where) {
  return full(a.shape(), value, a.dtype(), a.context(), where);
}

NDArray scalar_array(Scalar value, DType dtype, Context context, std::source_location where) try {
  check_fits(value, dtype, "scalar");
  Ref<ArrayImpl> made = detail::new_array({}, dtype, context, "scalar");
  if (context.is_cpu()) {
    // No other handle to the memory exists, so it can be written without an operation.
    kernels::fill({made->storage->ensure(nullptr), dtype, made->shape, made->strides}, value);
  } else {
    launch_fill(*made, value, true, where);
  }
  return NDArray(std::move(made));
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray arange(Scalar stop, std::source_location where) { return arange(0, stop, 1, where); }

NDArray arange(Scalar stop, DType dtype, Context context, std::source_location where) {
  return arange(0, stop, 1, dtype, context, where);
}

NDArray arange(Scalar start, Scalar stop, DType dtype, Context context, std::source_location where) {
  return arange(start, stop, 1, dtype, context, where);
}

NDArray arange(Scalar start, Scalar stop, Scalar step, std::source_location where) {
  const bool floating = start.floating() || stop.floating() || step.floating();
  return arange(start, stop, step, floating ? f32 : i64, cpu(), where);
}

NDArray arange(Scalar start, Scalar stop, Scalar step, DType dtype, Context context,
               std::source_location where) try {
  // Numbers that an i64 cannot hold are computed as doubles.
  const bool floating =
      start.floating() || stop.floating() || step.floating() || !start.fits() || !stop.fits() || !step.fits();
  MX_CHECK(step.real() != 0 && std::isfinite(start.real()) && std::isfinite(stop.real()) &&
               std::isfinite(step.real()),
           InvalidArgument, "[arange] expected finite numbers and a step other than 0, got from ",
           start.real(), " to ", stop.real(), " in steps of ", step.real());
  const double length = std::ceil((stop.real() - start.real()) / step.real());
  MX_CHECK(length < 0x1p62, InvalidArgument, "[arange] expected fewer than 2^62 elements, got from ",
           start.real(), " to ", stop.real(), " in steps of ", step.real());
  int64_t count = length > 0 ? static_cast<int64_t>(length) : 0;
  if (!floating) {
    // Exact, also above 2^53.
    const __int128 distance = static_cast<__int128>(stop.integer()) - start.integer();
    const __int128 s = step.integer();
    const __int128 n =
        (distance > 0) == (s > 0) && distance != 0
            ? (distance < 0 ? -distance : distance) / (s < 0 ? -s : s) + (distance % s != 0 ? 1 : 0)
            : 0;
    MX_CHECK(n < (static_cast<__int128>(1) << 62), InvalidArgument,
             "[arange] expected fewer than 2^62 elements, got from ", start.integer(), " to ", stop.integer(),
             " in steps of ", step.integer());
    count = static_cast<int64_t>(n);
  }
  if (count > 0) {
    check_fits(start, dtype, "arange");
    // An i64 can hold the last element, because it lies between start and stop.
    const auto last =
        static_cast<__int128>(start.integer()) + static_cast<__int128>(count - 1) * step.integer();
    const double real_last = start.real() + static_cast<double>(count - 1) * step.real();
    check_fits(floating ? Scalar(real_last) : Scalar(static_cast<int64_t>(last)), dtype, "arange");
  }
  return range(count, {floating, start, step}, dtype, context, "arange", where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray linspace(double start, double stop, IntArg count, DType dtype, Context context,
                 std::source_location where) try {
  MX_CHECK(count >= 0, InvalidArgument, "[linspace] expected a number of elements that is not negative, got ",
           count);
  if (count > 0) check_fits(start, dtype, "linspace");
  if (count > 1) check_fits(stop, dtype, "linspace");
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  NDArray made = range(count, {true, start, step}, dtype, context, "linspace", where);
  if (count > 1) made.select(0, count - 1).fill_(stop, where);  // exactly `stop`, without a rounding error
  return made;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray eye(IntArg rows, IntArg columns, DType dtype, Context context, std::source_location where) {
  if (columns == -1) columns = rows;
  NDArray made = filled("eye", {rows, columns}, 0, dtype, context, where);
  if (rows > 0 && columns > 0) made.diagonal().fill_(1, where);
  return made;
}

void detail::check_array_shape(const Shape& shape, int64_t elements, std::source_location where) try {
  MX_CHECK(checked_numel(shape, 1, "array") == elements, InvalidArgument,
           "[array] expected as many numbers as shape ", shape, " has elements, got ", elements);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray detail::from_host(const void* data, DType dtype, const Shape& shape, Context context,
                          std::source_location where) try {
  Ref<ArrayImpl> made = new_array(shape, dtype, cpu(), "array");
  MX_CHECK(data != nullptr || made->storage->bytes() == 0, InvalidArgument,
           "[array] expected the address of the elements, got null for shape ", shape);
  // No other handle to the new memory exists, so it can be written without an operation. `data` must be read
  // before this returns.
  if (const size_t bytes = made->storage->bytes(); bytes > 0)
    std::memcpy(made->storage->ensure(nullptr), data, bytes);
  return NDArray(std::move(made)).to(context, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

std::pair<int64_t, int64_t> detail::check_extent(const void* data, DType dtype, const Shape& shape,
                                                 const Strides& strides, const char* op) {
  checked_numel(shape, size_of(dtype), op);
  MX_CHECK(shape.rank() == strides.rank(), InvalidArgument, "[", op,
           "] expected a stride for each dimension of ", shape, ", got ", strides);
  if (shape.numel() == 0) return {0, -1};
  MX_CHECK(data != nullptr, InvalidArgument, "[", op,
           "] expected the address of the elements, got null for shape ", shape);
  int64_t low = 0, high = 0;
  bool overflow = false;
  for (int i = 0; i < shape.rank(); ++i) {
    int64_t reach = 0;
    overflow = overflow || __builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
               __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
  }
  // Every byte must have an address, from the first one to the one past the last.
  const auto size = static_cast<int64_t>(size_of(dtype));
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  int64_t first = 0, last = 0;
  overflow = overflow || __builtin_add_overflow(high, 1, &last) ||
             __builtin_mul_overflow(last, size, &last) || __builtin_add_overflow(address, last, &last) ||
             __builtin_mul_overflow(low, size, &first) || __builtin_add_overflow(address, first, &first) ||
             first < 0;
  MX_CHECK(!overflow, InvalidArgument, "[", op, "] expected elements inside the address space, got shape ",
           shape, " with strides ", strides);
  return {low, high};
}

NDArray from_external(void* data, DType dtype, const Shape& shape, const Strides& strides,
                      std::function<void()> release) {
  const auto [low, high] = detail::check_extent(data, dtype, shape, strides, "from_external");
  const auto size = static_cast<int64_t>(size_of(dtype));
  char* const first = static_cast<char*>(data) + low * size;
  Ref<Storage> memory =
      Storage::wrap(first, static_cast<size_t>((high - low + 1) * size), std::move(release));
  memory->expect_unseen_writers();  // the owner of the memory may write it
  return NDArray(ArrayImpl::make(std::move(memory), dtype, shape, strides, -low));
}

}  // namespace mx
