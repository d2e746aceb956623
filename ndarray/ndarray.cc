// Handles, waiting, copies and values. Views are in view.cc, creation in create.cc.
#include "ndarray/ndarray.h"
#include "ndarray/detail/place.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <ostream>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/detail/push_on.h"
#include "ndarray/hooks.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/launch.h"
#include "ndarray/print.h"

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
  // Other threads that need the value block here. If fill() throws, the array stays deferred, and the next
  // caller gets the error too. The mutex is recursive, because a push may run other operations on this thread
  // while it waits for room.
  detail::DeferredValue& deferred = *impl_->deferred;
  const std::lock_guard lock(deferred.mutex);
  if ((impl_->flags.load(std::memory_order_relaxed) & detail::kDeferred) == 0) return;
  deferred.fill(*impl_);
  impl_->flags.fetch_and(static_cast<uint8_t>(~detail::kDeferred), std::memory_order_release);
}

bool NDArray::shares_memory(const NDArray& other) const {
  return impl().storage.get() == other.impl().storage.get();
}

Var NDArray::var() const { return impl().storage->shared_var(current_engine()); }

namespace {

NDArray recorded_copy(ArrayImpl& source, DType dtype, Context context, std::source_location where) {
  NDArray copy = detail::copy_to(source, dtype, context, where);
  if (source.recorded()) detail::hooks().copied(source, copy.impl());
  return copy;
}

}  // namespace

NDArray NDArray::clone(std::source_location where) const try {
  return recorded_copy(impl(), dtype(), context(), where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::to_contiguous(std::source_location where) const {
  return contiguous() ? *this : clone(where);
}

NDArray NDArray::to(Context context, std::source_location where) const try {
  if (context == impl().context()) return *this;
  return recorded_copy(impl(), dtype(), context, where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::to(DType dtype, std::source_location where) const try {
  if (dtype == impl().dtype) return *this;
  return recorded_copy(impl(), dtype, context(), where);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray& NDArray::copy_from(const NDArray& source, std::source_location where) {
  detail::assign(impl(), source.impl(), "copy_from", where);
  return *this;
}

namespace {

const detail::Hooks& autograd(const char* op) {
  const detail::Hooks& table = detail::hooks();
  MX_CHECK(table.backward != nullptr, InvalidState, "[", op,
           "] expected a program with automatic differentiation, got one without; include "
           "executor/autograd/autograd.h and link mx::executor");
  return table;
}

}  // namespace

NDArray& NDArray::requires_grad_(bool on, std::source_location where) try {
  if (on) return requires_grad_(GradReq::add, where);
  if (!requires_grad()) return *this;
  MX_CHECK(autograd("requires_grad_").is_leaf(*this), InvalidState,
           "[requires_grad_] expected an array that is not the result of a recorded operation; use detach()");
  impl().set_extension({}, false);
  return *this;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray& NDArray::requires_grad_(GradReq req, std::source_location where) try {
  autograd("requires_grad_").requires_grad(*this, req);
  return *this;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::grad() const { return requires_grad() ? autograd("grad").grad(*this) : NDArray(); }

void NDArray::set_grad(const NDArray& grad, std::source_location where) const try {
  autograd("set_grad").set_grad(*this, grad);
} catch (const Error&) {
  detail::rethrow_at(where);
}

const NDArray& NDArray::retain_grad(std::source_location where) const try {
  autograd("retain_grad").retain_grad(*this);
  return *this;
} catch (const Error&) {
  detail::rethrow_at(where);
}

HookHandle NDArray::add_grad_hook(GradHook hook, std::source_location where) const try {
  return autograd("add_grad_hook").add_hook(*this, std::move(hook));
} catch (const Error&) {
  detail::rethrow_at(where);
}

void NDArray::backward(const NDArray& head, const BackwardOptions& options, std::source_location where) const
    try {
  autograd("backward").backward(*this, head, options);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::detach() const {
  const ArrayImpl& from = impl();
  return NDArray(ArrayImpl::make(from.storage, from.dtype, from.shape, from.strides, from.offset));
}

void NDArray::wait() const { impl().storage->wait(); }
bool NDArray::wait(IntArg timeout_ms) const { return impl().storage->wait(timeout_ms); }

void wait_all() { current_engine().wait_all(); }

namespace {

// In mode `check`, throws AccessError inside an operation that has not declared the array: the memory may
// change at any time.
void check_declared(const ArrayImpl& array, const char* op, bool write) {
  const auto operation = array.storage->undeclared_in_operation(write);
  if (!operation) [[likely]]
    return;
  throw AccessError(detail::concat("[", *operation, "] expected the operation to declare the array of ",
                                   array.dtype, ' ', array.shape, ", which it accesses through ", op,
                                   "(), among its ", write ? "writes or updates" : "reads or updates",
                                   "; pass NDArray::var() to the push"));
}

// A function that reads an array's elements in host memory. `here` is true if it runs on the thread that
// called with_elements(). Otherwise it runs in an operation, possibly after the caller's wait has thrown, so
// it must own everything that it uses.
using Look = std::function<void(const Tensor& elements, bool here)>;

struct LookAttrs {
  std::shared_ptr<Look> look;
  template <class V>
  static void fields(V&&) {}
};

void run_look(const KernelArgs& args) { (*args.attr<LookAttrs>().look)(args.in[0], false); }

const Kernel& look_kernel(const std::string& op) {
  static const Kernel kernels[] = {{"item", run_look, nullptr, 0, false},
                                   {"bool", run_look, nullptr, 0, false},
                                   {"print", run_look, nullptr, 0, false},
                                   {"to_vector", run_look, nullptr, 0, false}};
  for (const Kernel& kernel : kernels)
    if (op == kernel.name) return kernel;
  return kernels[3];
}

// Calls look(elements, here) and returns `here`.
template <class F>
bool with_elements(const NDArray& a, const char* op, F look) {
  check_declared(a.impl(), op, false);
  const NDArray local =
      a.context().is_cpu() ? a : detail::copy_to(a.impl(), a.dtype(), cpu(), std::source_location::current());
  local.wait();
  ArrayImpl& from = local.impl();
  if (from.storage->try_read()) {
    struct End {
      Storage& storage;
      ~End() { storage.end_read(); }
    } end{*from.storage};
    look(from.tensor(from.storage->ensure(nullptr)), true);
    return true;
  }
  // Another thread is writing, or a device may be using the memory, so an operation reads it in order.
  const NDArray done = empty({0});
  const Attrs attrs = LookAttrs{std::make_shared<Look>(std::move(look))};
  ArrayImpl* const inputs[] = {&from};
  ArrayImpl* const outputs[] = {&done.impl()};
  launch({.kernel = &look_kernel(op),
          .attrs = &attrs,
          .inputs = inputs,
          .outputs = outputs,
          .fresh_outputs = 1});
  done.wait();
  return false;
}

}  // namespace

void NDArray::read(void* target, DType dtype, const char* op) const {
  const size_t bytes = static_cast<size_t>(numel()) * size_of(dtype);
  if (bytes == 0) return wait();
  const auto elsewhere = std::make_shared<std::unique_ptr<std::byte[]>>();
  const bool here = with_elements(*this, op, [=](const Tensor& elements, bool on_this_thread) {
    if (!on_this_thread) *elsewhere = std::make_unique<std::byte[]>(bytes);
    void* const to = on_this_thread ? target : elsewhere->get();
    kernels::copy({to, dtype, elements.shape, contiguous_strides(elements.shape)}, elements);
  });
  if (!here) std::memcpy(target, elsewhere->get(), bytes);
}

std::string to_string(const NDArray& a) { return to_string(a, print_options()); }

std::string to_string(const NDArray& a, const PrintOptions& options) {
  const auto text = std::make_shared<std::string>();
  with_elements(a, "print", [=](const Tensor& elements, bool) { *text = format(elements, options); });
  return std::move(*text);
}

std::ostream& operator<<(std::ostream& out, const NDArray& a) { return out << to_string(a); }

// An error of the operations that compute the value names their lines, so it gets no other one here.
void NDArray::read_item(void* target, DType dtype, std::source_location where) const {
  MX_CHECK(numel() == 1, InvalidArgument, "[item] expected an array of one element, got shape ", shape(),
           detail::called_at(where));
  const DType own = impl().dtype;
  MX_CHECK(dtype == bool_ || category(dtype) >= category(own), InvalidArgument,
           "[item] expected item<T>() with a T that holds ", own, ", got ", dtype, detail::called_at(where));
  if (dtype == own) return read(target, own, "item");
  visit(own, [&](auto tag) {
    using From = typename decltype(tag)::type;
    From element{};
    read(&element, own, "item");
    const Scalar value = element;
    try {
      check_fits(value, dtype, "item");
    } catch (const Error&) {
      detail::rethrow_at(where);
    }
    visit(dtype, [&](auto to) {
      using To = typename decltype(to)::type;
      const To converted = value.to<To>();
      std::memcpy(target, &converted, sizeof(To));
    });
  });
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
  if (write) detail::check_target(array, "mutable_data");
  check_declared(array, "data", write);
  wait();
  if (write) {
    array.storage->expect_unseen_writers();
    // Earlier operations may not have read the array yet.
    if (!array.storage->quiet()) detail::wait_for_readers(array, "mutable_data");
    array.storage->bump_version();
  }
  return array.tensor(array.storage->ensure(nullptr)).data;
}

}  // namespace mx
