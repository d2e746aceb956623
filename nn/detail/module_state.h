// ModuleState: the state that all copies of a module share. Internal.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace mx::nn::detail {

struct ModuleState {
  struct Array {
    std::string name;
    Parameter place;
    bool buffer;
    bool persistent;
  };
  struct Hooks {
    std::vector<std::pair<uint64_t, ForwardPreHook>> before;
    std::vector<std::pair<uint64_t, ForwardHook>> after;
    std::vector<std::pair<uint64_t, BackwardPreHook>> before_backward;
    std::vector<std::pair<uint64_t, BackwardHook>> after_backward;

    bool backward() const { return !before_backward.empty() || !after_backward.empty(); }
    bool any() const { return !before.empty() || !after.empty() || backward(); }
  };

  std::vector<Array> arrays;  // in the order of registration, parameters and buffers mixed
  std::vector<std::pair<std::string, Parameter>> computed;  // parametrised parameters (nn/parametrize.h)
  std::vector<NamedModule> children;
  std::string name;  // its name in the module that it was added to last; empty if there is none
  std::atomic<bool> training{true};
  std::atomic<bool> warned{false};  // that it is called as part of a module that does not have it

  // A list of hooks is never changed: a call takes the whole list, and a change replaces it by a new one. So
  // hooks may be added and removed while others run.
  std::atomic<bool> hooked{false};
  mutable std::mutex mutex;  // guards hooks and next_hook
  std::shared_ptr<const Hooks> hooks;
  uint64_t next_hook = 1;

  static ModuleState& of(const Module& module) { return *module.state_; }
  std::shared_ptr<const Hooks> current_hooks() const {
    std::lock_guard lock(mutex);
    return hooks;
  }
  /// Calls change() with a copy of the list, which then replaces the list.
  template <class F>
  void change_hooks(const F& change) {
    // Destroyed after the lock is released: the destructor of a hook may run any code, even one that locks
    // again.
    std::shared_ptr<const Hooks> old;
    std::lock_guard lock(mutex);
    auto changed = hooks == nullptr ? std::make_shared<Hooks>() : std::make_shared<Hooks>(*hooks);
    change(*changed);
    hooked.store(changed->any(), std::memory_order_release);
    old = std::exchange(hooks, std::move(changed));
  }
};

/// Calls f(prefix, state) for a module and all modules in it; a module comes before its parts. A module that
/// is part of several ones is visited several times, each time with another prefix ("", "0.", "0.fc1.").
template <class F>
void walk(ModuleState& state, const std::string& prefix, const F& f) {
  f(prefix, state);
  for (const NamedModule& child : state.children)
    walk(ModuleState::of(*child.module), prefix + child.name + '.', f);
}

/// Returns "fc1 (Linear)", for error messages.
std::string title(const Module& module);

/// A scope in which f is called for every call of a module on this thread, after the module's hooks have run.
class CallWatch {
 public:
  using Function = std::function<void(const Module&, std::span<const NDArray> outputs)>;
  explicit CallWatch(Function f) : function_(std::move(f)), before_(std::exchange(current, this)) {}
  ~CallWatch() { current = before_; }
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  static bool active() { return current != nullptr; }
  static void saw(const Module& module, std::span<const NDArray> outputs) {
    for (const CallWatch* watch = current; watch != nullptr; watch = watch->before_)
      watch->function_(module, outputs);
  }

 private:
  static inline thread_local constinit CallWatch* current = nullptr;

  Function function_;
  CallWatch* before_;
};

}  // namespace mx::nn::detail
