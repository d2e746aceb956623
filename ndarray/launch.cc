#include "ndarray/launch.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "engine/detail/engine_load.h"
#include "engine/device/registry.h"
#include "ndarray/detail/call_place.h"
#include "ndarray/detail/describe.h"
#include "ndarray/detail/numerics.h"
#include "ndarray/detail/push_on.h"
#include "ndarray/kernels/parallel.h"
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/priority.h"

namespace mx {

using detail::ArrayImpl;
using detail::Touch;

namespace {

std::atomic<bool>& numerics_checked() {
  static std::atomic<bool> on = [] {
    const char* value = std::getenv("MX_CHECK_NUMERICS");
    return value != nullptr && std::string(value) == "1";
  }();
  return on;
}

/// A list of tensors. A short one needs no allocation.
class Tensors {
 public:
  explicit Tensors(size_t n) {
    if (n > kInline) more_ = std::make_unique<Tensor[]>(n);
    data_ = more_ != nullptr ? more_.get() : reinterpret_cast<Tensor*>(inline_);
  }
  Tensor* data() { return data_; }
  // Constructs tensor i. The constructor of the list leaves inline tensors uninitialised, to avoid setting
  // two shapes for each of them twice.
  void set(size_t i, const ArrayImpl& array, void* memory) { ::new (data_ + i) Tensor(array.tensor(memory)); }

 private:
  static constexpr size_t kInline = 6;
  alignas(Tensor) std::byte inline_[kInline * sizeof(Tensor)];
  std::unique_ptr<Tensor[]> more_;
  Tensor* data_;
};

bool all_finite(const Tensor& tensor) {
  if (!is_floating(tensor.dtype) || tensor.data == nullptr) return true;
  return visit(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      return true;
    } else {
      const kernels::LoopPlan<1> plan({&tensor});
      bool finite = true;
      kernels::for_each_run<1>(plan, 0, plan.numel, [&](const int64_t* offsets, int64_t n) {
        const T* p = tensor.as<T>() + offsets[0];
        for (int64_t i = 0; i < n && finite; ++i)
          finite = std::isfinite(static_cast<double>(p[i * plan.strides[0][0]]));
      });
      return finite;
    }
  });
}

bool finite_arguments(const KernelArgs& args) {
  // An infinite attribute is intended, so its results are not reported.
  return (args.attrs == nullptr || args.attrs->all_finite()) &&
         std::all_of(args.in.begin(), args.in.end(), all_finite);
}

void check_finite(const Tensor& tensor, const char* what, size_t i) {
  MX_CHECK(all_finite(tensor), NumericError, "expected finite values, got NaN or infinity in ", what, ' ', i,
           " of type ", tensor.dtype, " and shape ", tensor.shape, " from finite inputs");
}

// Runs a kernel on tensors that the host can access. If numerics are checked, throws NumericError for results
// that are not finite although the inputs are.
void run_on_host(const Kernel& kernel, const KernelArgs& args, uint64_t updated) {
  if (!numerics_checked().load(std::memory_order_relaxed) || !kernel.check_numerics) [[likely]] {
    kernel.cpu(args);
    return;
  }
  const bool finite_before = finite_arguments(args);
  kernel.cpu(args);
  if (!finite_before) return;
  for (size_t i = 0; i < args.out.size(); ++i) check_finite(args.out[i], "output", i);
  for (size_t i = 0; i < args.in.size(); ++i)
    if (has_bit(updated, i)) check_finite(args.in[i], "the changed input", i);
}

[[noreturn]] void rethrow_with_inputs(std::span<const Tensor> inputs) {
  try {
    throw;
  } catch (...) {
    std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
      return inputs.empty() ? text : detail::concat(text, " (inputs: ", detail::describe(inputs), ')');
    }));
  }
}

// Returns the array's memory; allocates it if there is none. An OutOfMemory error names the array's type and
// shape.
void* memory_of(const ArrayImpl& array, Stream* stream) {
  try {
    return array.storage->ensure(stream);
  } catch (const OutOfMemory&) {
    std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
      return detail::concat(text, " (for an array of ", array.dtype, ' ', array.shape, ')');
    }));
  }
}

// The data of a task on a device's stream, which may run after the operation that enqueued it has ended. The
// arrays' memory is valid until then, because it is freed in stream order.
struct DeviceCall {
  const Kernel* kernel;
  Attrs attrs;
  size_t inputs;
  uint64_t updated;
  std::vector<Tensor> tensors;
  Stream* stream;

  void run(KernelContext& context) {
    const bool host = context.device().context().kind != DeviceKind::gpu;
    std::vector<Tensor> local = tensors;  // a copy, because a captured task runs again
    for (Tensor& tensor : local) tensor.data = context.ptr(tensor.data);
    const std::span<const Tensor> all(local);
    const KernelArgs args{all.first(inputs), all.subspan(inputs), &attrs, &context, host ? nullptr : stream};
    try {
      host ? run_on_host(*kernel, args, updated) : kernel->cuda(args);
    } catch (...) {
      rethrow_with_inputs(args.in);
    }
  }
};

// The body of a pushed operation: runs the kernel on this thread, or enqueues it on the operation's stream.
class PushedKernel {
 public:
  explicit PushedKernel(const Launch& launch)
      : kernel_(launch.kernel), inputs_(launch.inputs.size()), updated_(launch.updated_inputs) {
    if (launch.attrs != nullptr) attrs_ = *launch.attrs;
  }

  void operator()(const RunContext& context, detail::PushedArrays& arrays) {
    const size_t n = arrays.size();
    Stream* const stream = context.stream();
    Tensors tensors(n);
    for (size_t i = 0; i < n; ++i) tensors.set(i, arrays[i], memory_of(arrays[i], stream));
    const std::span<const Tensor> in(tensors.data(), inputs_), out(tensors.data() + inputs_, n - inputs_);
    try {
      if (stream == nullptr) {
        run_on_host(*kernel_, {in, out, &attrs_}, updated_);
      } else {
        auto call =
            std::make_shared<DeviceCall>(kernel_, attrs_, inputs_, updated_,
                                         std::vector<Tensor>(tensors.data(), tensors.data() + n), stream);
        stream->submit([call = std::move(call)](KernelContext& c) { call->run(c); });
      }
    } catch (...) {
      rethrow_with_inputs(in);
    }
    arrays.ran_well();
  }

 private:
  const Kernel* kernel_;
  size_t inputs_;
  uint64_t updated_;
  Attrs attrs_;
};

// The storages that this call uses directly. The destructor ends the uses.
class DirectUse {
 public:
  ~DirectUse() {
    for (size_t i = 0; i < readers_; ++i) read_[i]->end_read();
    for (size_t i = 0; i < writers_; ++i) written_[i]->end_write();
  }
  bool write(Storage& storage) {
    for (size_t i = 0; i < writers_; ++i)
      if (written_[i] == &storage) return true;
    if (writers_ == kMost || !storage.try_write()) return false;
    written_[writers_++] = &storage;
    return true;
  }
  bool read(Storage& storage) {
    for (size_t i = 0; i < writers_; ++i)
      if (written_[i] == &storage) return true;
    if (readers_ == kMost || !storage.try_read()) return false;
    read_[readers_++] = &storage;
    return true;
  }

 private:
  static constexpr size_t kMost = 64;  // enough for an update of many parameters
  size_t readers_ = 0, writers_ = 0;
  Storage* read_[kMost];
  Storage* written_[kMost];
};

// Returns false if the operation has to be pushed; it has had no effect then.
bool run_directly(const Launch& l) {
  const size_t n = l.inputs.size() + l.outputs.size();
  std::exception_ptr error;
  {
    DirectUse use;
    for (size_t i = 0; i < l.outputs.size(); ++i)
      if (!has_bit(l.fresh_outputs, i) && !use.write(*l.outputs[i]->storage)) return false;
    if (l.updated_inputs != 0)
      for (size_t i = 0; i < l.inputs.size(); ++i)
        if (has_bit(l.updated_inputs, i) && !use.write(*l.inputs[i]->storage)) return false;
    for (size_t i = 0; i < l.inputs.size(); ++i)
      if (!use.read(*l.inputs[i]->storage)) return false;
    Tensors tensors(n);
    try {
      size_t k = 0;
      for (ArrayImpl* array : l.inputs) tensors.set(k++, *array, memory_of(*array, nullptr));
      for (ArrayImpl* array : l.outputs) tensors.set(k++, *array, memory_of(*array, nullptr));
      static const Attrs none{};
      const KernelArgs args{{tensors.data(), l.inputs.size()},
                            {tensors.data() + l.inputs.size(), l.outputs.size()},
                            l.attrs != nullptr ? l.attrs : &none};
      try {
        run_on_host(*l.kernel, args, l.updated_inputs);
        return true;
      } catch (...) {
        rethrow_with_inputs(args.in);
      }
    } catch (...) {
      error = std::current_exception();
    }
  }
  launch_failure(l, std::move(error));
  return true;
}

// How the operation uses its arrays. A short list needs no allocation.
class Uses {
 public:
  explicit Uses(size_t most) {
    if (most > kInline) more_.reserve(most);
  }
  void add(ArrayImpl* array, Touch touch) {
    if (more_.capacity() > 0) {
      more_.push_back({array, touch});
    } else {
      inline_[size_++] = {array, touch};
    }
  }
  void add_inputs(const Launch& l) {
    for (size_t i = 0; i < l.inputs.size(); ++i)
      add(l.inputs[i], has_bit(l.updated_inputs, i) ? Touch::update : Touch::read);
  }
  // An output that fills its whole storage replaces the variable's value, so it is a write, not an update.
  void add_outputs(const Launch& l) {
    for (ArrayImpl* array : l.outputs)
      add(array, !l.partial_outputs && array->covers_storage() ? Touch::write : Touch::update);
  }
  std::span<const detail::ArrayUse> span() const {
    return more_.capacity() > 0 ? std::span<const detail::ArrayUse>(more_) : std::span(inline_, size_);
  }

 private:
  static constexpr size_t kInline = 16;
  size_t size_ = 0;
  detail::ArrayUse inline_[kInline];
  std::vector<detail::ArrayUse> more_;
};

void push(const Launch& l, Context context) {
  Engine& engine = current_engine();
  if (!context.is_cpu() && engine.recording()) [[unlikely]] {
    // Memory that is allocated while a device's graph is captured belongs to the graph, and the arrays may
    // outlive the graph. So it is allocated before.
    for (ArrayImpl* array : l.inputs) array->storage->ensure(nullptr);
    for (ArrayImpl* array : l.outputs) array->storage->ensure(nullptr);
  }
  Uses uses(l.inputs.size() + l.outputs.size());
  uses.add_inputs(l);
  uses.add_outputs(l);
  detail::push_on<PushedKernel, const Launch&>(
      engine, uses.span(), l,
      {.context = context, .priority = detail::launch_priority, .name = l.kernel->name},
      detail::CallPlace::of(l.where));
}

}  // namespace

void set_check_numerics(bool on) { numerics_checked().store(on); }
bool check_numerics() { return numerics_checked().load(); }

void detail::check_outputs(const KernelArgs& args, uint64_t outputs) {
  if (args.stream != nullptr || !numerics_checked().load(std::memory_order_relaxed) ||
      !finite_arguments(args))
    return;
  for (size_t i = 0; i < args.out.size(); ++i)
    if (has_bit(outputs, i)) check_finite(args.out[i], "output", i);
}

void detail::check_target(const ArrayImpl& target, const char* op) {
  MX_CHECK(!target.may_overlap(), InvalidArgument, "[", op,
           "] expected a target whose elements do not share memory, got a view of shape ", target.shape,
           " and strides ", target.strides, "; use clone()");
}

Context common_context(const char* op, std::span<ArrayImpl* const> arrays) {
  if (arrays.empty()) return cpu();
  const Context first = arrays[0]->context();
  for (const ArrayImpl* array : arrays)
    MX_CHECK(detail::one_memory(array->context(), first), InvalidArgument, "[", op,
             "] expected arrays on one device, got one of shape ", arrays[0]->shape, " on ", first,
             " and one of shape ", array->shape, " on ", array->context());
  return first;
}

void launch_failure(const Launch& l, std::exception_ptr error) {
  Uses uses(l.inputs.size() + l.outputs.size());
  uses.add_outputs(l);
  for (size_t i = 0; i < l.inputs.size(); ++i)
    if (has_bit(l.updated_inputs, i)) uses.add(l.inputs[i], Touch::update);
  detail::push_on(
      current_engine(), uses.span(),
      [error = std::move(error)](const RunContext&, detail::PushedArrays&) { std::rethrow_exception(error); },
      {.name = l.kernel->name}, detail::CallPlace::of(l.where));
}

namespace {

Context context_of(const Launch& l) {
  const auto arrays = l.outputs.empty() ? l.inputs : l.outputs;
  const Context context = common_context(l.kernel->name, arrays);
  for (ArrayImpl* array : l.inputs)
    if (array->context() != context) [[unlikely]] {
      ArrayImpl* const two[] = {array, arrays[0]};
      common_context(l.kernel->name, two);
    }
  return context;
}

// An operation that is larger than Kernel::direct_work runs in the calling thread in three cases, each with a
// factor that bounds its size. If there is a GPU it is always pushed, because running it would delay the
// caller's submission of work to the GPU.

// There is one processor. No operation of the CPU could run in parallel with the calling thread anyway, and
// the data of one operation is still in the cache for the next one.
constexpr int64_t kAloneFactor = 1024;
// The engine has two threads and the second one is polling for work. It joins the loop of the operation that
// the caller runs, which saves the half microsecond of a push and a wait.
constexpr int64_t kSharedFactor = 16;
// As many threads call operations as there are processors. Each runs its own, up to about 100 us.
constexpr int64_t kCrowdedFactor = 32;

bool with_gpus() {
  static const bool result = num_gpus() > 0;
  return result;
}
int64_t direct_factor() {
  static const int64_t result = processors() == 1 && !with_gpus() ? kAloneFactor : 1;
  return result;
}

// Counts the threads that are currently running operations of the third case.
class AtWork {
 public:
  AtWork() { count().fetch_add(1, std::memory_order_relaxed); }
  ~AtWork() { count().fetch_sub(1, std::memory_order_relaxed); }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
  static bool on_the_other_processors() {
    static const int others = std::max(1, usable_cpus() - 1);
    return count().load(std::memory_order_relaxed) >= others;
  }

 private:
  static std::atomic<int>& count() {
    alignas(64) static constinit std::atomic<int> result{0};
    return result;
  }
};

bool launch_directly(const Launch& l) {
  const auto within = [&](int64_t factor) { return l.work / factor <= l.kernel->direct_work; };
  if (l.kernel->direct_work == 0 || !within(std::max(direct_factor(), kCrowdedFactor))) return false;
  const Engine& engine = current_engine();
  if (!engine.direct()) return false;
  if (within(direct_factor())) return run_directly(l);
  if (with_gpus()) return false;
  // A loop of a single piece cannot be shared.
  if (within(kSharedFactor) && l.work > kernels::kLoopGrain &&
      detail::EngineLoad::second_thread_searches(engine))
    return run_directly(l);
  if (!within(kCrowdedFactor) || (!detail::EngineLoad::crowded(engine) && !AtWork::on_the_other_processors()))
    return false;
  const AtWork at_work;
  const SerialLoops serial_loops;
  return run_directly(l);
}

}  // namespace

void launch(const Launch& l) {
  const Context context = l.context != nullptr ? *l.context : context_of(l);
  for (size_t i = 0; i < l.outputs.size(); ++i)
    if (!has_bit(l.fresh_outputs, i)) detail::check_target(*l.outputs[i], l.kernel->name);
  if (l.updated_inputs != 0)
    for (size_t i = 0; i < l.inputs.size(); ++i)
      if (has_bit(l.updated_inputs, i)) detail::check_target(*l.inputs[i], l.kernel->name);
  for (ArrayImpl* array : l.outputs) array->storage->bump_version();
  if (l.updated_inputs != 0)
    for (size_t i = 0; i < l.inputs.size(); ++i)
      if (has_bit(l.updated_inputs, i)) l.inputs[i]->storage->bump_version();
  if (context.is_cpu()) {
    if (launch_directly(l)) return;
  } else {
    MX_CHECK(
        context.kind != DeviceKind::gpu || l.kernel->cuda != nullptr, InvalidArgument, "[", l.kernel->name,
        "] expected an operator with a CUDA kernel, got one without; move the arrays to cpu() to run it");
  }
  push(l, context);
}

}  // namespace mx
