// launch(): runs an operation on arrays, directly or through the engine. Every operator starts here.
//
// A small operation of the CPU runs directly in the calling thread if no other thread uses its arrays and no
// pending operation conflicts with it. Every other operation is pushed to the engine with its arrays'
// variables. Both ways give the same results, the same order and the same errors: an error of the operation
// is not thrown by launch(), but by waits for the arrays that the operation should have written.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <span>

#include "ndarray/attrs.h"
#include "ndarray/detail/array_impl.h"
#include "ndarray/tensor.h"

namespace mx {

/// The arguments of a kernel.
struct KernelArgs {
  std::span<const Tensor> in;   ///< the inputs; inputs that are updated may be written
  std::span<const Tensor> out;  ///< the outputs, allocated, including those that are computed in place
  const Attrs* attrs = nullptr;
  KernelContext* device = nullptr;  ///< null for the CPU
  Stream* stream = nullptr;         ///< of a GPU: for memory in the stream's order (see operators/scratch.h)

  template <class T>
  const T& attr() const {
    return attrs->get<T>();
  }
};

/// Computes on the CPU, or enqueues on KernelContext::native_stream(). May throw any exception.
using KernelFn = void (*)(const KernelArgs&);

/// The code of an operation, with its properties. Must live as long as the process.
struct Kernel {
  const char* name;
  KernelFn cpu = nullptr;   ///< also for virtual devices
  KernelFn cuda = nullptr;  ///< null: cannot run on a GPU
  /// The operation may run directly if Launch::work is at most this. Larger ones may too, in the cases that
  /// docs/ndarray.md lists. 0: never.
  int64_t direct_work = 0;
  /// Non-finite values in its results are errors if MX_CHECK_NUMERICS is on.
  bool check_numerics = true;
};

/// Returns the set of up to 64 arrays with these numbers, such as bit_set(0, 2): numbers 0 and 2.
template <class... Numbers>
constexpr uint64_t bit_set(Numbers... numbers) {
  return ((uint64_t{1} << numbers) | ... | uint64_t{0});
}
/// Returns true if bit i of a set of up to 64 arrays is set. Arrays after the 64th are in no set.
constexpr bool has_bit(uint64_t set, size_t i) { return i < 64 && (set >> i & 1) != 0; }

struct Launch {
  const Kernel* kernel;
  const Attrs* attrs = nullptr;
  std::span<detail::ArrayImpl* const> inputs{};
  std::span<detail::ArrayImpl* const> outputs{};
  uint64_t updated_inputs = 0;       ///< bit i: inputs[i] is changed
  uint64_t fresh_outputs = 0;        ///< bit i: outputs[i] is new, and no other thread has a handle to it
  bool partial_outputs = false;      ///< the outputs keep the elements that the operation does not set
  int64_t work = 0;                  ///< the approximate number of element operations
  const Context* context = nullptr;  ///< the device of all arrays; null: launch() finds it
  std::source_location where = std::source_location::current();
};

/// Runs or pushes the operation. Precondition: no array has a deferred read; NDArray::impl() does such reads.
/// Throws InvalidArgument if the arrays are on several devices, if there is no kernel for the device, or if a
/// written array is a view that repeats elements. Throws what Engine::push throws.
void launch(const Launch& launch);

namespace detail {
/// Throws InvalidArgument, naming `op`, for an array that must not be written because several of its elements
/// share one address. launch() checks all arrays that it writes; code that acts before its launch() must
/// check first.
void check_target(const ArrayImpl& target, const char* op);
}  // namespace detail

/// Poisons the arrays that the operation should have written with `error`, as if it had been pushed and had
/// thrown it.
void launch_failure(const Launch& launch, std::exception_ptr error);

/// Returns the device of the arrays. Throws InvalidArgument, naming two of them, if they are on several.
Context common_context(const char* op, std::span<detail::ArrayImpl* const> arrays);

/// Turns the check of numerics on or off: the first operation that computes a non-finite value from finite
/// ones then fails with NumericError. The environment variable MX_CHECK_NUMERICS=1 turns it on.
void set_check_numerics(bool on);
bool check_numerics();

}  // namespace mx
