// Handles, registration, calls and hooks. Arrays are in module_arrays.cc, text in module_text.cc.
#include "nn/module.h"

#include <algorithm>
#include <set>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "executor/autograd/autograd.h"  // links it: parameters require gradients
#include "ndarray/detail/place.h"
#include "nn/detail/backward_tap.h"
#include "nn/detail/call_site.h"
#include "nn/detail/module_state.h"

namespace mx::nn {

using detail::CallSite;
using detail::CallWatch;
using detail::ModuleState;
using mx::detail::CloneScope;

namespace {

void set_state_copy(ModuleState& made, const ModuleState& original) {
  // The CloneScope is active, so the parameters and parts copied here become clones.
  made.arrays = original.arrays;
  made.computed = original.computed;
  made.children = original.children;
  made.name = original.name;
  made.training = original.training.load();
  if (const auto hooks = original.current_hooks())
    made.change_hooks([&](ModuleState::Hooks& copy) { copy = *hooks; });
  made.next_hook = original.next_hook;
}

std::shared_ptr<ModuleState> share(const std::shared_ptr<ModuleState>& state) {
  CloneScope* const scope = CloneScope::active();
  return scope == nullptr ? state : scope->copy_of(state, set_state_copy);
}

void check_name(const ModuleState& state, const std::string& name, const char* op) {
  MX_CHECK(!name.empty() && name.find('.') == std::string::npos, InvalidArgument, "[", op,
           "] expected a name without dots, got \"", name, '"');
  check_saveable_name(name, op);
  const auto named = [&](const auto& entry) { return entry.name == name; };
  MX_CHECK(std::none_of(state.arrays.begin(), state.arrays.end(), named) &&
               std::none_of(state.children.begin(), state.children.end(), named),
           InvalidArgument, "[", op, "] expected a name that is not used in the module yet, got \"", name,
           '"');
}

/// The names of parts, for errors: "fc1, fc2".
std::string names_of(const std::vector<NamedModule>& children) {
  std::string names;
  for (const NamedModule& child : children) names += (names.empty() ? "" : ", ") + child.name;
  return names.empty() ? "(none)" : names;
}

void check_not_inside(const ModuleState& target, const AnyModule& module, const std::string& name,
                      const char* op) {
  detail::walk(ModuleState::of(*module), "", [&](const std::string&, const ModuleState& state) {
    MX_CHECK(&state != &target, InvalidArgument, "[", op,
             "] expected a module that does not contain the module to which it is added, got \"", name, '"');
  });
}

template <class Hook>
HookHandle add_hook(const std::shared_ptr<ModuleState>& module,
                    std::vector<std::pair<uint64_t, Hook>> ModuleState::Hooks::*list, Hook hook,
                    const char* op) {
  MX_CHECK(hook != nullptr, InvalidArgument, "[", op, "] expected a function, got an empty one");
  uint64_t id = 0;
  module->change_hooks([&](ModuleState::Hooks& hooks) {
    id = module->next_hook++;
    (hooks.*list).emplace_back(id, std::move(hook));
  });
  return HookHandle([id, list, weak = std::weak_ptr<ModuleState>(module)] {
    const std::shared_ptr<ModuleState> state = weak.lock();
    if (state == nullptr) return;
    state->change_hooks([&](ModuleState::Hooks& hooks) {
      std::erase_if(hooks.*list, [id](const auto& entry) { return entry.first == id; });
    });
  });
}

// True if the error has exactly this type of the library. A derived type of the program may carry more than
// text, so it must not be replaced.
bool is_plain(const Error& error) {
  const std::type_info& type = typeid(error);
  const auto any_of = [&]<class... E>() { return ((type == typeid(E)) || ...); };
  return any_of.operator()<InvalidArgument, InvalidHandle, InvalidState, OutOfMemory, DeviceError, Timeout,
                           Cancelled, OperationError, AccessError, NumericError>();
}

/// Returns f(). If it throws an error of the library, appends a line with the module's name and call to the
/// message.
template <class F>
auto named(const Module& module, const CallSite& site, const F& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (!is_plain(e)) throw;
    std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
      const std::string line = text + "\n  in " + detail::title(module);
      const std::string place = site.passed_on() ? "" : mx::detail::place_of(site.where());
      return place.empty() ? line : line + ", called at " + place;
    }));
  }
}

/// A module that was never added to another one, but is called by one, has most likely been forgotten: it is
/// called like the others, and is not trained, saved or moved with them. Precondition: state.name is empty.
void warn_if_forgotten(const Module& module, ModuleState& state, const std::source_location& where) {
  if (!CallSite::active() || !grad_enabled()) return;
  const bool trainable = std::any_of(state.arrays.begin(), state.arrays.end(), [](const auto& array) {
    return !array.buffer && array.place.array().requires_grad();
  });
  if (!trainable || state.warned.exchange(true)) return;
  const std::string place = mx::detail::place_of(where);
  log(LogLevel::warning, "[Module] a module calls ", detail::title(module), place.empty() ? "" : " at ",
      place,
      ", which was not registered by add() or replace(): its parameters are not trained, saved "
      "or moved with those of the module. This is said once");
}

}  // namespace

// Handles.

Module::Module() : state_(std::make_shared<ModuleState>()) {}
Module::~Module() = default;
Module::Module(const Module& other) : state_(share(other.state_)) {}
Module& Module::operator=(const Module& other) {
  state_ = share(other.state_);
  return *this;
}
Cloned Module::clone() const { return Cloned(*this); }

AnyModule::AnyModule(const AnyModule& other)
    : held_(CloneScope::active() == nullptr ? other.held_ : other.held_->copy()) {}

AnyModule AnyModule::clone() const {
  const CloneScope scope;
  return AnyModule(*this);
}

// Registration.

Parameter Module::add_parameter(const std::string& name, const NDArray& value, bool requires_grad) {
  check_name(*state_, name, "add_parameter");
  const Parameter place = Parameter::make(value);
  if (requires_grad) NDArray(place.array()).requires_grad_();
  state_->arrays.push_back({name, place, false, true});
  return place;
}

Parameter Module::add_buffer(const std::string& name, const NDArray& value, bool persistent) {
  check_name(*state_, name, "add_buffer");
  const Parameter place = Parameter::make(value);
  state_->arrays.push_back({name, place, true, persistent});
  return place;
}

void Module::add(const std::string& name, const AnyModule& module) {
  check_name(*state_, name, "add");
  check_not_inside(*state_, module, name, "add");
  state_->children.push_back({name, module});
  ModuleState::of(*module).name = name;
}

void Module::replace(const std::string& name, const AnyModule& module) {
  const auto at = std::find_if(state_->children.begin(), state_->children.end(),
                               [&](const NamedModule& child) { return child.name == name; });
  MX_CHECK(at != state_->children.end(), InvalidArgument,
           "[replace] expected the name of one of the children ", names_of(state_->children), ", got \"",
           name, '"');
  check_not_inside(*state_, module, name, "replace");
  at->module = module;
  ModuleState::of(*module).name = name;
}

// Calls.

NDArray Module::forward(const NDArray&) {
  throw InvalidState(
      "[" + type_name() +
      "] expected the module type to override forward(const NDArray&), which is not a const "
      "function, got a type that does not; a module that takes or returns several arrays, such as "
      "a GRU, cannot be called as one of a Sequential");
}

NDArray Module::operator()(const NDArray& x, std::source_location where) const {
  // A module is a handle, so const does not apply to the shared state. forward() is not const.
  Module& self = const_cast<Module&>(*this);
  if (!observed()) [[likely]] {
    if (state_->name.empty()) warn_if_forgotten(*this, *state_, where);
    const CallSite site(where);
    return named(*this, site, [&] { return self.forward(x); });
  }
  const std::vector<NDArray> outputs = run(
      {x},
      [&](std::span<const NDArray> inputs) {
        MX_CHECK(inputs.size() == 1, InvalidArgument, "[", type_name(),
                 "] expected one input after the pre-hooks, got ", inputs.size());
        return std::vector<NDArray>{self.forward(inputs[0])};
      },
      where);
  MX_CHECK(outputs.size() == 1, InvalidArgument, "[", type_name(),
           "] expected one output after the hooks, got ", outputs.size(), mx::detail::called_at(where));
  return outputs[0];
}

bool Module::observed() const {
  return state_->hooked.load(std::memory_order_acquire) || CallWatch::active();
}

void Module::enter(const std::function<void()>& body, std::source_location where) const {
  if (state_->name.empty()) warn_if_forgotten(*this, *state_, where);
  const CallSite site(where);
  named(*this, site, [&] { body(); });
}

void detail::throw_other_count(const std::string& module, const char* what, size_t expected, size_t got) {
  throw InvalidArgument(mx::detail::concat("[", module, "] expected ", expected, ' ', what, ", got ", got));
}

std::vector<NDArray> Module::run(std::vector<NDArray> inputs,
                                 const std::function<std::vector<NDArray>(std::span<const NDArray>)>& body,
                                 std::source_location where) const {
  if (state_->name.empty()) warn_if_forgotten(*this, *state_, where);
  const CallSite site(where);
  return named(*this, site, [&] {
    std::shared_ptr<const ModuleState::Hooks> hooks;
    if (state_->hooked.load(std::memory_order_acquire)) hooks = state_->current_hooks();
    if (hooks != nullptr)
      for (const auto& entry : hooks->before) entry.second(*this, inputs);
    std::vector<NDArray> outputs;
    if (hooks != nullptr && hooks->backward() && grad_enabled()) {
      detail::BackwardTap tap(*this, hooks);
      inputs = tap.inputs(inputs);
      outputs = tap.outputs(body(inputs));
    } else {
      outputs = body(inputs);
    }
    if (hooks != nullptr)
      for (const auto& entry : hooks->after) entry.second(*this, inputs, outputs);
    CallWatch::saw(*this, outputs);
    return outputs;
  });
}

HookHandle Module::register_forward_pre_hook(ForwardPreHook hook) {
  return add_hook(state_, &ModuleState::Hooks::before, std::move(hook), "register_forward_pre_hook");
}

HookHandle Module::register_forward_hook(ForwardHook hook) {
  return add_hook(state_, &ModuleState::Hooks::after, std::move(hook), "register_forward_hook");
}

HookHandle Module::register_backward_pre_hook(BackwardPreHook hook) {
  return add_hook(state_, &ModuleState::Hooks::before_backward, std::move(hook),
                  "register_backward_pre_hook");
}

HookHandle Module::register_backward_hook(BackwardHook hook) {
  return add_hook(state_, &ModuleState::Hooks::after_backward, std::move(hook), "register_backward_hook");
}

// Modes.

Module& Module::train(bool on) {
  detail::walk(*state_, "", [on](const std::string&, ModuleState& state) {
    state.training.store(on, std::memory_order_relaxed);
  });
  return *this;
}

bool Module::training() const { return state_->training.load(std::memory_order_relaxed); }
bool Module::train_mode() const { return mode_override().value_or(training()); }

// Parts.

const std::vector<NamedModule>& Module::children() const { return state_->children; }

const AnyModule& Module::child(const std::string& path) const {
  const ModuleState* at = state_.get();
  for (size_t from = 0;;) {
    const size_t dot = std::min(path.find('.', from), path.size());
    const std::string name = path.substr(from, dot - from);
    const AnyModule* found = nullptr;
    for (const NamedModule& child : at->children)
      if (child.name == name) found = &child.module;
    MX_CHECK(found != nullptr, InvalidArgument, "[child] expected the path \"", path,
             "\" to name one of the children ", names_of(at->children), ", got \"", name, '"');
    if (dot == path.size()) return *found;
    at = &ModuleState::of(**found);
    from = dot + 1;
  }
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> list;
  std::set<const void*> seen;
  const std::function<void(const std::string&, Module&)> visit = [&](const std::string& path,
                                                                     Module& module) {
    if (!seen.insert(module.identity()).second) return;
    list.emplace_back(path, &module);
    for (const NamedModule& child : module.children())
      visit(path.empty() ? child.name : path + '.' + child.name, *child.module);
  };
  visit("", *this);
  return list;
}

Module& Module::apply(const std::function<void(Module&)>& f) {
  MX_CHECK(f != nullptr, InvalidArgument, "[apply] expected a function, got an empty one");
  std::set<const void*> seen;
  const std::function<void(Module&)> visit = [&](Module& module) {
    if (!seen.insert(module.identity()).second) return;
    for (const NamedModule& child : module.children()) visit(*child.module);
    f(module);
  };
  visit(*this);
  return *this;
}

}  // namespace mx::nn
