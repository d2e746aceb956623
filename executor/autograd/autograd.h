// Automatic differentiation by recording (docs/autograd.md). This header has what the members of NDArray do
// not offer: gradients of chosen arrays, several outputs at once, functions with a hand-written backward
// pass.
//
//   NDArray w = rand({3}).requires_grad_();
//   NDArray loss = sum(exp(w) * w);
//   loss.backward();                               // w.grad()
//   NDArray g = gradients({loss2}, {w})[0];        // leaves w.grad() alone
//
// Thread-safety: several threads may record and run backward passes at the same time; through common parts of
// a graph only if retain_graph is set. Leaves accumulate gradients in the order of their arrival. While one
// thread changes an array in place and records that, no other thread may use the array: the value and the
// graph are not changed at the same moment.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/grad_mode.h"
#include "ndarray/ndarray.h"

namespace mx {

namespace detail {
class FunctionCall;
}  // namespace detail

/// Runs one backward pass from several arrays. `heads` has one gradient per output, or none at all; an output
/// of one element may have an empty handle.
void backward(const std::vector<NDArray>& outputs, const std::vector<NDArray>& heads = {},
              const BackwardOptions& options = {},
              std::source_location where = std::source_location::current());

struct GradientOptions {
  std::vector<NDArray> heads{};
  bool retain_graph = false;
  bool create_graph = false;
  /// Return empty handles for inputs that no output depends on, instead of throwing.
  bool allow_unused = false;
};

/// Returns the gradients, with respect to `inputs`, of the sum of all heads times outputs. Inputs may be
/// leaves or results of recorded operations. Throws as NDArray::backward() does, and InvalidState for an
/// unused input.
std::vector<NDArray> gradients(const std::vector<NDArray>& outputs, const std::vector<NDArray>& inputs,
                               const GradientOptions& options = {},
                               std::source_location where = std::source_location::current());

/// A function with a hand-written backward pass:
///
///   struct Exp : Function {
///     std::vector<NDArray> forward(std::span<const NDArray> in) override {
///       NDArray y = exp(in[0]);
///       save({y});
///       return {y};
///     }
///     std::vector<NDArray> backward(std::span<const NDArray> heads) override {
///       return {heads[0] * saved(0)};
///     }
///   };
///   NDArray z = apply<Exp>({x})[0];
///
/// Inputs and outputs that backward() needs are kept with save(). Then gradients of gradients flow through
/// them, and it is an error if a value was changed in place in between. Members hold values that depend on no
/// input, such as numbers and masks. For gradients of gradients, an array in a member is a constant, unless
/// it is an input or a view of one. Each call creates a new object.
class Function {
 public:
  virtual ~Function() = default;
  /// Computes the outputs. Runs without recording. The inputs are new handles, which share the memory of the
  /// caller's arrays, unless elements of a recorded array share memory. It is an error to change a recorded
  /// input in place: InvalidState. apply() returns a copy of an output that shares memory with an input, with
  /// an array from before the call, or with another output, or that is a part of a larger array.
  virtual std::vector<NDArray> forward(std::span<const NDArray> inputs) = 0;
  /// Returns one gradient per input; an empty handle means zero. If there are several outputs, a head may be
  /// an empty handle. Is recorded if gradients of gradients are requested.
  virtual std::vector<NDArray> backward(std::span<const NDArray> heads) = 0;

 protected:
  /// To be called in forward(): keeps values until the last backward pass of the call. They should be inputs,
  /// outputs or views of them. Other floating-point arrays have no gradient, and saved() throws InvalidState
  /// if one would be needed. A second call adds to the first.
  void save(std::initializer_list<NDArray> values);
  void save(std::span<const NDArray> values);
  /// To be called in backward(): returns saved value i. Throws InvalidArgument if there is no such value, and
  /// InvalidState if the value was changed in place since forward() returned, or outside of backward().
  const NDArray& saved(size_t i) const;

 private:
  friend class detail::FunctionCall;
  std::vector<NDArray> to_save_;  // the arguments of save(), until forward() has returned
};

/// The inputs of a call of apply(), and the line of the call, which errors of the backward pass name.
struct FunctionInputs {
  std::vector<NDArray> arrays;
  std::source_location where;

  /// Takes a list of arrays, or what converts to one, such as Parameters.
  template <std::convertible_to<std::vector<NDArray>> List>
  FunctionInputs(const List& list, std::source_location at = std::source_location::current())
      : arrays(list), where(at) {}
  FunctionInputs(std::initializer_list<NDArray> list,
                 std::source_location at = std::source_location::current())
      : arrays(list), where(at) {}
};

namespace detail {
/// `name` stands for the function in errors; if empty, the name of its type does.
std::vector<NDArray> apply_function(std::shared_ptr<Function> function, std::span<const NDArray> inputs,
                                    std::source_location where, const std::string& name = {});
bool install_autograd();
inline const bool kAutogradInstalled = install_autograd();
}  // namespace detail

/// Calls F(args...) with the inputs. An error of the library that its backward() throws later has the name of
/// F and the line of this call.
template <class F, class... Args>
std::vector<NDArray> apply(const FunctionInputs& inputs, Args&&... args) {
  return detail::apply_function(std::make_shared<F>(std::forward<Args>(args)...), inputs.arrays,
                                inputs.where);
}

/// Calls a function without a struct. `back` takes the heads and returns one gradient per input. Captures of
/// the closures live as long as the graph of the result. Do not capture an array to which a value that
/// depends on the result is assigned later: the array and the graph would own each other and never be freed.
/// Use a struct and save() instead.
std::vector<NDArray> apply(const FunctionInputs& inputs,
                           const std::function<std::vector<NDArray>(std::span<const NDArray>)>& forward,
                           std::function<std::vector<NDArray>(std::span<const NDArray>)> back);

}  // namespace mx
