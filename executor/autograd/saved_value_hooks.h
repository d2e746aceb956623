// SavedValueHooks: decides how the values are kept that operations save for the backward pass. For example in
// a shorter type, compressed, on another device, or in a file.
//
//   {
//     SavedValueHooks scope(
//         [](const NDArray& value) -> std::any { return value.dtype() == f32 ? value.to(bf16) : value; },
//         [](const std::any& kept) {
//           const NDArray value = std::any_cast<NDArray>(kept);
//           return value.dtype() == bf16 ? value.to(f32) : value;
//         });
//     loss = net(x);              // calls the first function for each value that is saved
//   }
//   loss.backward();              // calls the second function for each value that is read
//
// pack() is called at the call of the operation, with an array of any type (also labels of a loss), which is
// not recorded. It must not change the array. The graph keeps what it returns, until the backward pass has
// read it, or until the graph is freed. unpack() is called in each backward pass that reads the value, on the
// thread of the pass, and returns an array of the same shape, type and device. Its values need not be equal:
// gradients are computed from what it returns. Both run without recording, without autocast, and without
// hooks of this kind. Of several scopes the innermost counts. The scope belongs to one thread; the graph may
// be used by any.
//
// Values that are kept anyway are not packed: those of leaves (parameters), unless the options ask for them,
// inputs of checkpoint(), and views of inputs and outputs that a Function saves.
//
// An exception of pack() leaves the call whose value it got; the graph of its inputs is unchanged. One of
// unpack() leaves the backward pass; the node has its values again, so another pass may follow if the nodes
// before it were retained. Both name the operator and the line of its call.
//
// If pack() returns an array that shares memory with its argument, changes of that memory in place are not
// noticed. What it returns must not own an array that depends on the result of the operation: neither would
// ever be freed.
//
// Thread-safety: the functions may be called by several threads at once, if several threads record or
// run backward passes. The names follow torch.autograd.graph.saved_tensors_hooks.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <source_location>
#include <string>

#include "ndarray/ndarray.h"

namespace mx {

using PackValue = std::function<std::any(const NDArray& value)>;
using UnpackValue = std::function<NDArray(const std::any& kept)>;

struct SavedValueOptions {
  bool leaves = false;  ///< pack the values of arrays with requires_grad_(), too
};

namespace detail {
struct SavedValueFunctions {
  PackValue pack;
  UnpackValue unpack;
  SavedValueOptions options;
};

/// The functions of the innermost scope of this thread; null: none.
inline thread_local constinit const std::shared_ptr<const SavedValueFunctions>* saved_value_functions =
    nullptr;

class SavedValueScope {
 public:
  explicit SavedValueScope(const std::shared_ptr<const SavedValueFunctions>* functions)
      : before_(saved_value_functions) {
    saved_value_functions = functions;
  }
  ~SavedValueScope() { saved_value_functions = before_; }
  SavedValueScope(const SavedValueScope&) = delete;
  SavedValueScope& operator=(const SavedValueScope&) = delete;

 private:
  const std::shared_ptr<const SavedValueFunctions>* const before_;
};

/// A value that pack() has received. Copies share what pack() returned.
class PackedValue {
 public:
  PackedValue() = default;
  /// Calls pack() of the innermost scope, which must exist. `what` ("input 0 of [mul], called at ...") is
  /// added to the message of an exception.
  PackedValue(const ArrayImpl& value, const std::function<std::string()>& what);
  explicit operator bool() const { return kept_ != nullptr; }
  /// Calls unpack(). Throws InvalidArgument if it returns an array of another shape, type or device than
  /// `like`.
  NDArray unpack(const ArrayImpl& like, const std::function<std::string()>& what) const;

 private:
  std::shared_ptr<const SavedValueFunctions> functions_;
  std::shared_ptr<const std::any> kept_;
};

/// Returns true if a scope of this thread packs values of this array.
bool packs(const ArrayImpl& value);
}  // namespace detail

class SavedValueHooks {
 public:
  /// Throws InvalidArgument for an empty function.
  SavedValueHooks(PackValue pack, UnpackValue unpack, const SavedValueOptions& options = {},
                  std::source_location where = std::source_location::current());

 private:
  const std::shared_ptr<const detail::SavedValueFunctions> functions_;
  const detail::SavedValueScope scope_;
};

}  // namespace mx
