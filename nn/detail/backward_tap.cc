#include "nn/detail/backward_tap.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "executor/autograd/autograd.h"
#include "nn/detail/call_site.h"

namespace mx::nn::detail {
namespace {

/// A handle of the module for its hooks: the program's handles may be gone when the backward pass runs.
class TappedModule final : public Module {
 public:
  explicit TappedModule(const Module& module) : Module(module), type_(module.type_name()) {}
  std::string type_name() const override { return type_; }

 private:
  const std::string type_;
};

}  // namespace

struct BackwardTap::Shared {
  Shared(const Module& of, std::shared_ptr<const ModuleState::Hooks> list)
      : module(of), hooks(std::move(list)) {}

  /// Calls f for each hook of the call that has not been removed since. Throws InvalidArgument if a hook
  /// changes the number of the gradients or the shape of one: the arrays have the given shapes.
  template <class List, class F>
  void each_hook(List ModuleState::Hooks::*list, const char* kind, const std::vector<NDArray>& gradients,
                 const std::vector<Shape>& shapes, const F& f) const {
    const std::shared_ptr<const ModuleState::Hooks> now = ModuleState::of(module).current_hooks();
    if (now == nullptr) return;
    const auto call = [&](const auto& hook) {
      f(hook);
      check(kind, gradients, shapes);
    };
    for (const auto& [id, hook] : hooks.get()->*list)
      if (std::any_of((*now.*list).begin(), (*now.*list).end(),
                      [number = id](const auto& entry) { return entry.first == number; }))
        call(hook);
  }

  void check(const char* kind, const std::vector<NDArray>& gradients,
             const std::vector<Shape>& shapes) const {
    MX_CHECK(gradients.size() == shapes.size(), InvalidArgument, "[", title(module), "] expected a ", kind,
             " not to change the number of gradients, ", shapes.size(), ", got one that left ",
             gradients.size());
    for (size_t i = 0; i < shapes.size(); ++i)
      MX_CHECK(!gradients[i].defined() || gradients[i].shape() == shapes[i], InvalidArgument, "[",
               title(module), "] expected a ", kind, " to leave gradient ", i, " of shape ", shapes[i],
               ", got one that left shape ", gradients[i].shape());
  }

  void call_after(std::vector<NDArray>& of_inputs, std::span<const NDArray> of_outputs) const {
    each_hook(&ModuleState::Hooks::after_backward, "backward hook", of_inputs, inputs,
              [&](const BackwardHook& hook) { hook(module, of_inputs, of_outputs); });
  }

  const TappedModule module;
  const std::shared_ptr<const ModuleState::Hooks> hooks;
  std::vector<Shape> inputs, outputs;  // of the call
  std::vector<size_t> recorded;        // the numbers of the inputs that have a gradient

  std::mutex mutex;
  std::vector<NDArray> output_gradients;  // between the two functions of a backward pass; guarded by mutex
};

namespace {

std::vector<NDArray> same(std::span<const NDArray> arrays) { return {arrays.begin(), arrays.end()}; }

struct TapOutputs final : Function {
  explicit TapOutputs(std::shared_ptr<BackwardTap::Shared> s, std::vector<size_t> which)
      : shared(std::move(s)), numbers(std::move(which)) {}

  std::vector<NDArray> forward(std::span<const NDArray> arrays) override { return same(arrays); }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    std::vector<NDArray> gradients(shared->outputs.size());
    for (size_t i = 0; i < numbers.size(); ++i) gradients[numbers[i]] = heads[i];
    shared->each_hook(&ModuleState::Hooks::before_backward, "backward pre-hook", gradients, shared->outputs,
                      [&](const BackwardPreHook& hook) { hook(shared->module, gradients); });
    if (shared->recorded.empty()) {
      std::vector<NDArray> none(shared->inputs.size());
      shared->call_after(none, gradients);
    } else {
      const std::lock_guard lock(shared->mutex);
      shared->output_gradients = gradients;
    }
    std::vector<NDArray> result;
    for (const size_t number : numbers) result.push_back(gradients[number]);
    return result;
  }

  const std::shared_ptr<BackwardTap::Shared> shared;
  const std::vector<size_t> numbers;  // of the outputs that have a gradient
};

struct TapInputs final : Function {
  explicit TapInputs(std::shared_ptr<BackwardTap::Shared> s) : shared(std::move(s)) {}

  std::vector<NDArray> forward(std::span<const NDArray> arrays) override { return same(arrays); }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    std::vector<NDArray> gradients(shared->inputs.size()), outputs;
    for (size_t i = 0; i < heads.size(); ++i) gradients[shared->recorded[i]] = heads[i];
    {
      const std::lock_guard lock(shared->mutex);
      outputs = std::move(shared->output_gradients);
      shared->output_gradients.clear();
    }
    outputs.resize(shared->outputs.size());
    shared->call_after(gradients, outputs);
    std::vector<NDArray> result;
    for (const size_t number : shared->recorded) result.push_back(gradients[number]);
    return result;
  }

  const std::shared_ptr<BackwardTap::Shared> shared;
};

std::vector<Shape> shapes_of(const std::vector<NDArray>& arrays) {
  std::vector<Shape> shapes;
  for (const NDArray& array : arrays) shapes.push_back(array.shape());
  return shapes;
}

/// Returns the numbers of the arrays that have a gradient.
std::vector<size_t> with_gradient(const std::vector<NDArray>& arrays) {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < arrays.size(); ++i)
    if (arrays[i].impl().recorded()) numbers.push_back(i);
  return numbers;
}

/// Passes the arrays with these numbers through the function.
std::vector<NDArray> through(std::shared_ptr<Function> function, std::vector<NDArray> arrays,
                             const std::vector<size_t>& numbers, const Module& module) {
  std::vector<NDArray> chosen;
  for (const size_t number : numbers) chosen.push_back(arrays[number]);
  const std::vector<NDArray> passed =
      mx::detail::apply_function(std::move(function), chosen, call_site(), title(module));
  for (size_t i = 0; i < numbers.size(); ++i) arrays[numbers[i]] = passed[i];
  return arrays;
}

}  // namespace

BackwardTap::BackwardTap(const Module& module, std::shared_ptr<const ModuleState::Hooks> hooks)
    : shared_(std::make_shared<Shared>(module, std::move(hooks))) {}
BackwardTap::~BackwardTap() = default;

std::vector<NDArray> BackwardTap::inputs(const std::vector<NDArray>& arrays) {
  shared_->inputs = shapes_of(arrays);
  shared_->recorded = with_gradient(arrays);
  if (shared_->recorded.empty()) return arrays;
  return through(std::make_shared<TapInputs>(shared_), arrays, shared_->recorded, shared_->module);
}

std::vector<NDArray> BackwardTap::outputs(const std::vector<NDArray>& arrays) {
  shared_->outputs = shapes_of(arrays);
  std::vector<size_t> numbers = with_gradient(arrays);
  if (numbers.empty()) return arrays;
  auto function = std::make_shared<TapOutputs>(shared_, numbers);
  return through(std::move(function), arrays, numbers, shared_->module);
}

}  // namespace mx::nn::detail
