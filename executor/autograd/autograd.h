// Automatic differentiation by recording (docs/autograd.md). What NDArray's members cannot say: gradients of
// chosen arrays, several outputs at once, functions with a way back of their own.
//
//   NDArray w = rand({3}).requires_grad_();
//   NDArray loss = sum(exp(w) * w);
//   loss.backward();                               // w.grad()
//   NDArray g = gradients({loss2}, {w})[0];        // leaves w.grad() alone
//
// Thread-safety: several threads may record and go back at the same time, through common parts too when
// retain_graph is set; gradients add up in the leaves in the order of arrival. An array that one thread
// changes in place while it records must not be used by another thread at that moment: the value and the
// graph are changed one after the other.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ndarray/grad_mode.h"
#include "ndarray/ndarray.h"

namespace mx {

namespace detail {
class FunctionCall;
}  // namespace detail

/// backward() of several arrays together. `heads`: one per output, empty handles (or none at all) for outputs
/// of one element.
void backward(const std::vector<NDArray>& outputs, const std::vector<NDArray>& heads = {},
              const BackwardOptions& options = {});

struct GradientOptions {
  std::vector<NDArray> heads{};
  bool retain_graph = false;
  bool create_graph = false;
  /// Empty handles for inputs that no output depends on; else that is an error.
  bool allow_unused = false;
};

/// The gradients of the sum of all heads times outputs with respect to `inputs`, which may be results of
/// recorded operations as well as leaves. Throws as NDArray::backward() does, and InvalidState for an unused
/// input.
std::vector<NDArray> gradients(const std::vector<NDArray>& outputs, const std::vector<NDArray>& inputs,
                               const GradientOptions& options = {});

/// A function whose way back is written by hand:
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
/// Inputs and outputs that backward() needs go through save(). Gradients of gradients then flow through them,
/// and a value that was changed in place in between is an error. Members hold what depends on no input:
/// numbers, masks. For gradients of gradients an array in a member is a constant, unless it is an input or a
/// view of one. A new object serves each call.
class Function {
 public:
  virtual ~Function() = default;
  /// Runs without recording. The inputs are handles of its own: they share the memory of the caller's arrays.
  virtual std::vector<NDArray> forward(std::span<const NDArray> inputs) = 0;
  /// One gradient per input, an empty handle for zero. A head may be an empty handle where there are several
  /// outputs. Runs recorded when gradients of gradients are asked for.
  virtual std::vector<NDArray> backward(std::span<const NDArray> heads) = 0;

 protected:
  /// In forward(): keeps values until the last pass has gone through the call. They are inputs, outputs, or
  /// views of them; of other arrays of floating point there is no gradient, and saved() says so when one
  /// would be needed. A second call adds to the first.
  void save(std::initializer_list<NDArray> values);
  void save(std::span<const NDArray> values);
  /// In backward(): the value that was saved as number i. Throws InvalidArgument for an i that was not saved,
  /// InvalidState when the value was changed in place since forward() returned, and outside of backward().
  const NDArray& saved(size_t i) const;

 private:
  friend class detail::FunctionCall;
  std::vector<NDArray> to_save_;  // until forward() has returned
};

namespace detail {
std::vector<NDArray> apply_function(std::shared_ptr<Function> function, std::span<const NDArray> inputs);
bool install_autograd();
inline const bool kAutogradInstalled = install_autograd();
}  // namespace detail

template <class F, class... Args>
std::vector<NDArray> apply(const std::vector<NDArray>& inputs, Args&&... args) {
  return detail::apply_function(std::make_shared<F>(std::forward<Args>(args)...), inputs);
}

/// A function without a struct. `back` gets the heads and gives one gradient per input. What the closures
/// capture lives as long as the graph of the result. An array that is captured and later changed in place, by
/// an assignment of something that depends on the result, keeps itself alive: use a struct and save().
std::vector<NDArray> apply(const std::vector<NDArray>& inputs,
                           const std::function<std::vector<NDArray>(std::span<const NDArray>)>& forward,
                           std::function<std::vector<NDArray>(std::span<const NDArray>)> back);

}  // namespace mx
