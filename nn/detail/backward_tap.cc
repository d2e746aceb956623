#include "nn/detail/backward_tap.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "executor/autograd/autograd.h"

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

  /// Calls f for each hook of the call that has not been removed since.
  template <class List, class F>
  void each_hook(List ModuleState::Hooks::*list, const F& f) const {
    const std::shared_ptr<const ModuleState::Hooks> now = ModuleState::of(module).current_hooks();
    if (now == nullptr) return;
    for (const auto& [id, hook] : hooks.get()->*list)
      if (std::any_of((*now.*list).begin(), (*now.*list).end(),
                      [number = id](const auto& entry) { return entry.first == number; }))
        f(hook);
  }

  void call_after(std::vector<NDArray>& of_inputs, std::span<const NDArray> of_outputs) const {
    each_hook(&ModuleState::Hooks::after_backward,
              [&](const BackwardHook& hook) { hook(module, of_inputs, of_outputs); });
  }

  const TappedModule module;
  const std::shared_ptr<const ModuleState::Hooks> hooks;
  size_t inputs = 0, outputs = 0;  // of the call
  std::vector<size_t> recorded;    // the numbers of those that have a gradient

  std::mutex mutex;
  std::vector<NDArray> output_gradients;  // between the two functions of a backward pass; guarded by mutex
};

namespace {

std::vector<NDArray> same(std::span<const NDArray> arrays) { return {arrays.begin(), arrays.end()}; }

struct TapOutputs final : Function {
  explicit TapOutputs(std::shared_ptr<BackwardTap::Shared> s, std::vector<size_t> which, size_t outputs)
      : shared(std::move(s)), numbers(std::move(which)), all(outputs) {}

  std::vector<NDArray> forward(std::span<const NDArray> arrays) override { return same(arrays); }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    std::vector<NDArray> gradients(all);
    for (size_t i = 0; i < numbers.size(); ++i) gradients[numbers[i]] = heads[i];
    shared->each_hook(&ModuleState::Hooks::before_backward,
                      [&](const BackwardPreHook& hook) { hook(shared->module, gradients); });
    gradients.resize(all);
    if (shared->recorded.empty()) {
      std::vector<NDArray> none(shared->inputs);
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
  const size_t all;
};

struct TapInputs final : Function {
  explicit TapInputs(std::shared_ptr<BackwardTap::Shared> s) : shared(std::move(s)) {}

  std::vector<NDArray> forward(std::span<const NDArray> arrays) override { return same(arrays); }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    std::vector<NDArray> gradients(shared->inputs), outputs;
    for (size_t i = 0; i < heads.size(); ++i) gradients[shared->recorded[i]] = heads[i];
    {
      const std::lock_guard lock(shared->mutex);
      outputs = std::move(shared->output_gradients);
      shared->output_gradients.clear();
    }
    outputs.resize(shared->outputs);
    shared->call_after(gradients, outputs);
    gradients.resize(shared->inputs);
    std::vector<NDArray> result;
    for (const size_t number : shared->recorded) result.push_back(gradients[number]);
    return result;
  }

  const std::shared_ptr<BackwardTap::Shared> shared;
};

/// Returns the numbers of the arrays that have a gradient.
std::vector<size_t> with_gradient(const std::vector<NDArray>& arrays) {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < arrays.size(); ++i)
    if (arrays[i].impl().recorded()) numbers.push_back(i);
  return numbers;
}

/// Passes the arrays with these numbers through the function.
std::vector<NDArray> through(std::shared_ptr<Function> function, std::vector<NDArray> arrays,
                             const std::vector<size_t>& numbers) {
  std::vector<NDArray> chosen;
  for (const size_t number : numbers) chosen.push_back(arrays[number]);
  const std::vector<NDArray> passed = mx::detail::apply_function(std::move(function), chosen);
  for (size_t i = 0; i < numbers.size(); ++i) arrays[numbers[i]] = passed[i];
  return arrays;
}

}  // namespace

BackwardTap::BackwardTap(const Module& module, std::shared_ptr<const ModuleState::Hooks> hooks)
    : shared_(std::make_shared<Shared>(module, std::move(hooks))) {}
BackwardTap::~BackwardTap() = default;

std::vector<NDArray> BackwardTap::inputs(const std::vector<NDArray>& arrays) {
  shared_->inputs = arrays.size();
  shared_->recorded = with_gradient(arrays);
  if (shared_->recorded.empty()) return arrays;
  return through(std::make_shared<TapInputs>(shared_), arrays, shared_->recorded);
}

std::vector<NDArray> BackwardTap::outputs(const std::vector<NDArray>& arrays) {
  shared_->outputs = arrays.size();
  std::vector<size_t> numbers = with_gradient(arrays);
  if (numbers.empty()) return arrays;
  auto function = std::make_shared<TapOutputs>(shared_, numbers, arrays.size());
  return through(std::move(function), arrays, numbers);
}

}  // namespace mx::nn::detail
