// Automatic differentiation by recording (docs/autograd.md). What NDArray's members cannot say: gradients of
// chosen arrays, several outputs at once, functions with a way back of their own.
//
//   NDArray w = rand({3}).requires_grad_();
//   NDArray loss = sum(exp(w) * w);
//   loss.backward();                               // w.grad()
//   NDArray g = gradients({loss2}, {w})[0];        // leaves w.grad() alone
//
// Thread-safety: several threads may record and go back at the same time, through common parts too when
// retain_graph is set; gradients add up in the leaves in the order of arrival.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ndarray/grad_mode.h"
#include "ndarray/ndarray.h"

namespace mx {

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
///     NDArray y;
///     std::vector<NDArray> forward(std::span<const NDArray> in) override { return {y = exp(in[0])}; }
///     std::vector<NDArray> backward(std::span<const NDArray> heads) override { return {heads[0] * y}; }
///   };
///   NDArray z = apply<Exp>({x})[0];
///
/// Members hold what backward() needs; arrays among them must not be changed in place. A new object serves
/// each call.
class Function {
 public:
  virtual ~Function() = default;
  /// Runs without recording.
  virtual std::vector<NDArray> forward(std::span<const NDArray> inputs) = 0;
  /// One gradient per input, an empty handle for zero. A head may be an empty handle where there are several
  /// outputs. Runs recorded when gradients of gradients are asked for.
  virtual std::vector<NDArray> backward(std::span<const NDArray> heads) = 0;
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

/// A function without a struct. `back` gets the heads and gives one gradient per input.
std::vector<NDArray> apply(const std::vector<NDArray>& inputs,
                           const std::function<std::vector<NDArray>(std::span<const NDArray>)>& forward,
                           std::function<std::vector<NDArray>(std::span<const NDArray>)> back);

}  // namespace mx
