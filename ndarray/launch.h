// launch(): how any operation on arrays comes to run. It is the one place where arrays meet the engine.
//
// A small operation of the CPU whose arrays nobody else is using, or is going to use earlier, runs at once in
// the calling thread; every other one is pushed to the engine with its arrays' variables. Both give the same
// result, the same errors (an error never comes out of launch(), but out of waiting for what the operation
// should have written) and the same order.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <span>

#include "ndarray/attrs.h"
#include "ndarray/detail/array_impl.h"
#include "ndarray/tensor.h"

namespace mx {

/// What a kernel is called with.
struct KernelArgs {
  std::span<const Tensor> in;   ///< the inputs; those that are updated may be written
  std::span<const Tensor> out;  ///< the outputs, in place ones among them, allocated
  const Attrs* attrs = nullptr;
  KernelContext* device = nullptr;  ///< null for the CPU
  Stream* stream = nullptr;         ///< of a GPU: for memory in the stream's order (see operators/scratch.h)

  template <class T>
  const T& attr() const {
    return attrs->get<T>();
  }
};

/// Runs on the CPU, or enqueues on KernelContext::native_stream(). May throw anything.
using KernelFn = void (*)(const KernelArgs&);

/// What launch() must know of an operation's code. Lives as long as the process.
struct Kernel {
  const char* name;
  KernelFn cpu = nullptr;   ///< also of virtual devices
  KernelFn cuda = nullptr;  ///< null: not on a GPU
  /// Runs at once when Launch::work is at most this, and may where it is some times more and the caller has
  /// the time (docs/ndarray.md); 0: never.
  int64_t direct_work = 0;
  /// Sees non-finite values in what it writes reported when MX_CHECK_NUMERICS is on.
  bool check_numerics = true;
};

/// Is bit i of a set of up to 64 arrays set? What comes after the 64th is in no set.
constexpr bool has_bit(uint64_t set, size_t i) { return i < 64 && (set >> i & 1) != 0; }

struct Launch {
  const Kernel* kernel;
  const Attrs* attrs = nullptr;
  std::span<detail::ArrayImpl* const> inputs{};
  std::span<detail::ArrayImpl* const> outputs{};
  uint64_t updated_inputs = 0;       ///< bit i: inputs[i] is changed
  uint64_t fresh_outputs = 0;        ///< bit i: outputs[i] has just been made: nobody else can know it
  bool partial_outputs = false;      ///< an output keeps what the operation does not set
  int64_t work = 0;                  ///< about how many element operations there are
  const Context* context = nullptr;  ///< where all arrays are known to be; null: found out
  std::source_location where = std::source_location::current();
};

/// Throws InvalidArgument when the arrays are on several devices, there is no kernel for the device, or what
/// is written is a view that repeats elements, and what Engine::push throws. All arrays must have been read
/// (Arg, or NDArray::plain).
void launch(const Launch& launch);

namespace detail {
/// Throws InvalidArgument, naming `op`, for an array that must not be written because several of its elements
/// are one in memory. launch() checks all that it writes; who does something before that checks first.
void check_target(const ArrayImpl& target, const char* op);
}  // namespace detail

/// Fails what the operation should have written with `error`, as if it had been pushed and had thrown it.
void launch_failure(const Launch& launch, std::exception_ptr error);

/// The device of an operation on these arrays: where all are. Throws InvalidArgument naming two that differ.
Context common_context(const char* op, std::span<detail::ArrayImpl* const> arrays);

/// Stop at the operation that makes the first value that is not finite, from finite ones. Set by
/// MX_CHECK_NUMERICS=1, or here.
void set_check_numerics(bool on);
bool check_numerics();

}  // namespace mx
