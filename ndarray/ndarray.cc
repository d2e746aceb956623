// Handles, waiting, copies and values. Views are in view.cc, creation in create.cc.
#include "ndarray/ndarray.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/hooks.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/launch.h"

namespace mx {

using detail::ArrayImpl;
using detail::Ref;

detail::Hooks& detail::hooks() {
  static Hooks table;
  return table;
}

void NDArray::throw_undefined() {
  throw InvalidArgument(
      "[NDArray] expected an array, got an empty handle (default-constructed or moved from)");
}

void NDArray::resolve() const {
  // The value is asked for: compute it, then it is an array like any other. Whoever comes at the same time
  // waits; one that fails stays what it was.
  static std::recursive_mutex mutex;
  std::lock_guard lock(mutex);
  if (impl_->deferred == nullptr) return;
  impl_->deferred->fill(*impl_);
  impl_->deferred.reset();
  impl_->flags.fetch_and(static_cast<uint8_t>(~detail::kDeferred), std::memory_order_release);
}

bool NDArray::shares_memory(const NDArray& other) const {
  return impl().storage.get() == other.impl().storage.get();
}

Var NDArray::var() const { return impl().storage->var(current_engine()); }

NDArray NDArray::clone(std::source_location where) const {
  return detail::copy_to(impl(), dtype(), context(), where);
}

NDArray NDArray::to_contiguous(std::source_location where) const {
  return contiguous() ? *this : clone(where);
}

NDArray NDArray::to(Context context, std::source_location where) const {
  if (context == impl().context()) return *this;
  return detail::copy_to(impl(), dtype(), context, where);
}

NDArray NDArray::to(DType dtype, std::source_location where) const {
  if (dtype == impl().dtype) return *this;
  return detail::copy_to(impl(), dtype, context(), where);
}

NDArray& NDArray::copy_from(const NDArray& source, std::source_location where) {
  detail::assign(impl(), source.impl(), "copy_from", where);
  return *this;
}

void NDArray::wait() const {
  Storage& storage = *impl().storage;
  if (storage.on_cpu() && storage.quiet()) return;
  if (storage.has_var()) current_engine().wait(storage.known_var());
}

bool NDArray::wait(int64_t timeout_ms) const {
  Storage& storage = *impl().storage;
  if (storage.on_cpu() && storage.quiet()) return true;
  return !storage.has_var() || current_engine().wait(storage.known_var(), timeout_ms);
}

void wait_all() { current_engine().wait_all(); }

void NDArray::read(void* target, DType dtype, const char* op) const {
  NDArray local = *this;
  if (!context().is_cpu())
    local = detail::copy_to(impl(), this->dtype(), cpu(), std::source_location::current());
  local.wait();
  if (local.numel() == 0) return;
  const auto copy_out = [](ArrayImpl& from, void* to, DType type) {
    const auto skipped = from.offset * static_cast<int64_t>(size_of(from.dtype));
    char* const memory = static_cast<char*>(from.storage->ensure(nullptr)) + skipped;
    kernels::copy({to, type, from.shape, contiguous_strides(from.shape)},
                  {memory, from.dtype, from.shape, from.strides});
  };
  ArrayImpl& from = local.impl();
  if (from.storage->try_read()) {
    copy_out(from, target, dtype);
    from.storage->end_read();
    return;
  }
  // Others have come meanwhile, or devices are involved: in the engine's order. The operation keeps what it
  // uses, because this wait may end before it.
  Engine& engine = current_engine();
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<size_t>(local.numel()) * size_of(dtype));
  const Var done = engine.new_var(op);
  try {
    engine.push([local, bytes, dtype, copy_out] { copy_out(local.impl(), bytes->data(), dtype); },
                {.reads = {local.var()}, .writes = {done}, .name = op});
    engine.wait(done);
  } catch (...) {
    engine.delete_var(done);
    throw;
  }
  engine.delete_var(done);
  std::memcpy(target, bytes->data(), bytes->size());
}

void NDArray::check_item(DType dtype) const {
  MX_CHECK(numel() == 1, InvalidArgument, "[item] expected an array of one element, got shape ", shape());
  const auto category = [](DType type) { return is_floating(type) ? 2 : is_integral(type) ? 1 : 0; };
  MX_CHECK(dtype == bool_ || category(dtype) >= category(this->dtype()), InvalidArgument,
           "[item] expected item<T>() with a T that holds ", this->dtype(), ", got ", dtype);
}

bool NDArray::truth() const {
  MX_CHECK(numel() == 1, InvalidArgument, "[bool] expected an array of one element, got shape ", shape(),
           "; use any() or all()");
  bool value = false;
  read(&value, bool_, "bool");
  return value;
}

void* NDArray::host_data(DType dtype, bool write) const {
  ArrayImpl& array = impl();
  MX_CHECK(array.context().is_cpu(), InvalidArgument, "[data] expected an array of the CPU, got one on ",
           array.context(), "; use to(cpu())");
  MX_CHECK(array.dtype == dtype, InvalidArgument, "[data] expected the array's element type ", array.dtype,
           ", got ", dtype);
  wait();
  if (write) array.storage->bump_version();
  return static_cast<char*>(array.storage->ensure(nullptr)) +
         array.offset * static_cast<int64_t>(size_of(array.dtype));
}

}  // namespace mx
