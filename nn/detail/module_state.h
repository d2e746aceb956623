// ModuleState: what the copies of a module share. Internal.
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
  };

  std::vector<Array> arrays;  // as registered, parameters and buffers mixed
  std::vector<NamedModule> children;
  std::string name;  // in the module that it was added to last; empty: in none
  std::atomic<bool> training{true};

  // Calls take the whole list, changes put another in its place: a hook may come or go while others run.
  std::atomic<bool> hooked{false};
  mutable std::mutex mutex;  // of what follows
  std::shared_ptr<const Hooks> hooks;
  uint64_t next_hook = 1;

  static ModuleState& of(const Module& module) { return *module.state_; }
  std::shared_ptr<const Hooks> current_hooks() const {
    std::lock_guard lock(mutex);
    return hooks;
  }
  /// change(hooks) of a copy that becomes the list.
  template <class F>
  void change_hooks(const F& change) {
    std::shared_ptr<const Hooks> old;  // ends after the lock: hooks may hold anything
    std::lock_guard lock(mutex);
    auto changed = hooks == nullptr ? std::make_shared<Hooks>() : std::make_shared<Hooks>(*hooks);
    change(*changed);
    hooked.store(!changed->before.empty() || !changed->after.empty(), std::memory_order_release);
    old = std::exchange(hooks, std::move(changed));
  }
};

/// f(prefix, state) for a module and all in it, those in front that contain others. A module that is part of
/// several comes several times, with prefixes that differ ("", "0.", "0.fc1.").
template <class F>
void walk(ModuleState& state, const std::string& prefix, const F& f) {
  f(prefix, state);
  for (const NamedModule& child : state.children)
    walk(ModuleState::of(*child.module), prefix + child.name + '.', f);
}

/// "fc1 (Linear)", for errors.
std::string title(const Module& module);

/// While one lives, f sees every call of a module on this thread after its hooks have run.
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
