// Module: a function with parameters, made of other modules.
//
//   struct Block : nn::Module {
//     nn::Linear fc1, fc2;
//     explicit Block(int64_t d) : fc1{d, d}, fc2{d, d} { add("fc1", fc1); add("fc2", fc2); }
//     NDArray forward(const NDArray& x) { return x + fc2(relu(fc1(x))); }
//   };
//   Block block(64);
//   NDArray y = block(x);                 // forward(), and the hooks
//   Block same = block;                   // the same parameters
//   Block other = block.clone();          // parameters of its own
//
// A module is a handle, as NDArray is: copies share parameters, buffers, parts, hooks and the training flag;
// to() and load_state_dict() change what all copies see. Other members of a struct (numbers, NDArrays that it
// did not add) are copied as C++ copies them.
//
// A struct registers its parts by add(), its parameters by add_parameter() and its buffers by add_buffer(),
// in its constructor. Assigning another module to a member later does not register that module. Hold modules
// and parameters as values, also in std::vector, std::optional or AnyModule: clone() does not find what is
// held by pointer or reference.
//
// Names are those of PyTorch: "0.weight" is the parameter "weight" of the part "0".
//
// Thread-safety: calls of one model may run in any number of threads at once, and hooks may be added and
// removed meanwhile. Everything else that changes a module (add, to, load, train, tie) must run alone.
// forward() may run in several threads for one object, so it must not change members of the struct; it may
// change arrays.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "operators/clone_scope.h"
#include "operators/parameter.h"

namespace mx::nn {

class AnyModule;
class Cloned;
class Module;
struct NamedModule;

using mx::Parameter;

namespace detail {
struct ModuleState;
/// The C++ name without namespaces and enclosing functions.
std::string short_name(const std::type_info& type);
[[noreturn]] void throw_not_whole(const char* op, const Module& module, const std::type_info& as);
}  // namespace detail

/// Is M a type of modules that can be held as a value?
template <class M>
inline constexpr bool kIsModule = std::is_base_of_v<Module, M> && !std::is_same_v<Module, M>;

/// Sees a call's inputs before forward(), and may replace them.
using ForwardPreHook = std::function<void(const Module&, std::vector<NDArray>& inputs)>;
/// Sees a call's inputs and outputs, and may replace the outputs. A hook must not hold its own module, which
/// would keep it alive for ever; it is passed the module.
using ForwardHook =
    std::function<void(const Module&, std::span<const NDArray> inputs, std::vector<NDArray>& outputs)>;

using mx::HookHandle;

struct LoadOptions {
  bool strict = true;  ///< false: missing and unexpected names are skipped and reported
};
/// What a load with LoadOptions::strict = false has skipped.
struct LoadReport {
  std::vector<std::string> missing;     ///< names of the module that were not loaded
  std::vector<std::string> unexpected;  ///< loaded names that the module does not have
};

class Module {
 public:
  virtual ~Module();

  /// Runs the pre-hooks, forward() and the hooks. An InvalidArgument on the way out gets a line for each
  /// module that it passes.
  NDArray operator()(const NDArray& x) const;
  /// What the module computes; to be overridden. Modules with other inputs or outputs define an operator() of
  /// their own that calls run().
  virtual NDArray forward(const NDArray& x);

  // Arrays. A parameter that has several names is listed under the first; in a state_dict under all.

  /// Parameters with their names, for optimisers and loops:
  /// `for (const auto& [name, p] : net.parameters())`, `for (const NDArray& p : net.parameters())`.
  Parameters parameters() const;
  /// The same; PyTorch's name for it.
  Parameters named_parameters() const { return parameters(); }
  std::vector<NDArray> buffers() const;
  NamedArrays named_buffers() const;
  /// The parameter or buffer with that name ("0.weight"). Throws InvalidArgument, with the names there are.
  Parameter parameter(const std::string& name) const;
  /// The number of elements of all parameters.
  int64_t num_parameters() const;

  /// Parameters and the buffers that are saved: the arrays themselves, detached. Their values are read in the
  /// order of calls, by save_safetensors for example.
  NamedArrays state_dict() const;
  /// Copies into the arrays of the module, converting types and devices (a type of higher category does not
  /// fit). Throws one InvalidArgument that lists everything that does not fit, and the error of an array that
  /// has failed; in both cases nothing is changed. Waits for `arrays`.
  LoadReport load_state_dict(const NamedArrays& arrays, const LoadOptions& options = {});
  /// Writes state_dict() as a safetensors file, and loads one. They also throw what save_safetensors and
  /// load_safetensors throw.
  void save(const std::string& path, const FileMetadata& metadata = {}) const;
  LoadReport load(const std::string& path, const LoadOptions& options = {});

  /// Moves parameters and buffers, with the parameters' gradients. Optimisers and trainers follow at their
  /// next call. An NDArray taken from the module earlier is left behind and no longer requires a gradient.
  /// Nothing is changed if the device does not exist.
  Module& to(Context context);
  /// Converts those of floating-point type. Throws InvalidArgument for another type.
  Module& to(DType dtype);
  /// Sets whether operations on the parameters are recorded.
  Module& requires_grad_(bool on = true);
  /// Parameters have no gradient afterwards.
  void zero_grad();

  /// Sets the mode of this module and of all in it.
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  /// What train() set last; true at first. A TrainMode or PredictMode scope of the thread takes precedence.
  bool training() const;

  // Parts.

  const std::vector<NamedModule>& children() const;
  /// The part with that path ("0.fc1"). Throws InvalidArgument, with the names there are.
  const AnyModule& child(const std::string& path) const;
  /// This module as "" and all in it, those in front that contain others; each once. The pointers live as
  /// long as this module.
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// f of all modules in this one and then of itself; each once.
  Module& apply(const std::function<void(Module&)>& f);

  /// Hooks are called in the order in which they were registered. Copies share hooks; a clone has copies of
  /// them. Throws InvalidArgument for an empty function.
  HookHandle register_forward_pre_hook(ForwardPreHook hook);
  HookHandle register_forward_hook(ForwardHook hook);

  /// A table: every module's path and type, the shape of its output for this input, and the number of
  /// elements of its own parameters. Runs the module without recording and in predict mode.
  std::string summary(const NDArray& x) const;
  /// The same for zeros, on the device of the first parameter.
  std::string summary(const Shape& x, DType dtype = f32) const;
  /// Without shapes; runs nothing.
  std::string summary() const;

  /// The same module with parameters and buffers of its own, without gradients: `Block b = a.clone();`. Its
  /// type must be written out; nn::clone(a) and ModuleOf<Block> know it.
  Cloned clone() const;

  /// "Block": for errors, print and summary.
  virtual std::string type_name() const;
  /// "in=3, out=4": what print shows besides.
  virtual std::string extra() const { return ""; }

  /// The same for all copies.
  const void* identity() const { return state_.get(); }

 protected:
  Module();
  // For derived types alone: a copy of the base would have lost forward().
  Module(const Module& other);
  Module& operator=(const Module& other);

  // Registration. All throw InvalidArgument for names that are empty, taken or have a dot, and for names
  // under which no file can hold an array (check_saveable_name). They return what they registered.

  Parameter add_parameter(const std::string& name, const NDArray& value, bool requires_grad = true);
  /// `persistent`: is saved with the parameters.
  Parameter add_buffer(const std::string& name, const NDArray& value, bool persistent = true);
  /// A module may be part of several, but not of itself.
  template <class M>
  requires kIsModule<M> M add(const std::string& name, const M& module);
  void add(const std::string& name, const AnyModule& module);

  /// training(), or what the thread's mode says.
  bool train_mode() const;

  /// What operator() does, for other signatures: pre-hooks, body, hooks.
  std::vector<NDArray> run(std::vector<NDArray> inputs,
                           const std::function<std::vector<NDArray>(std::span<const NDArray>)>& body) const;

 private:
  friend struct detail::ModuleState;

  std::shared_ptr<detail::ModuleState> state_;
};

/// A copy with parameters of its own, of any type of module. Throws InvalidArgument when `module` is more
/// than an M.
template <class M>
requires kIsModule<M> M clone(const M& module) {
  if (typeid(module) != typeid(M)) detail::throw_not_whole("clone", module, typeid(M));
  const mx::detail::CloneScope scope;
  return M(module);
}

/// What Module::clone() gives: becomes the module that it is assigned to. Lives no longer than the
/// expression.
class Cloned {
 public:
  explicit Cloned(const Module& module) : module_(module) {}
  Cloned(const Cloned&) = delete;
  /// Throws InvalidArgument when the module is not an M.
  template <class M>
  requires kIsModule<M>
  operator M() && {
    if (typeid(module_) != typeid(M)) detail::throw_not_whole("clone", module_, typeid(M));
    return nn::clone(static_cast<const M&>(module_));
  }

 private:
  const Module& module_;
};

/// A module of any type, as a value: what Sequential holds. Copies share it.
class AnyModule {
 public:
  /// Throws InvalidArgument when `module` is more than an M: through a reference to a base its own part would
  /// be lost.
  template <class M>
  requires kIsModule<M> AnyModule(const M& module) {
    if (typeid(module) != typeid(M)) detail::throw_not_whole("AnyModule", module, typeid(M));
    held_ = std::make_shared<Held<M>>(module);
  }
  AnyModule(const AnyModule& other);
  AnyModule& operator=(AnyModule other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }

  /// A copy with parameters of its own.
  AnyModule clone() const;

  NDArray operator()(const NDArray& x) const { return held_->get()(x); }
  Module& operator*() const { return held_->get(); }
  Module* operator->() const { return &held_->get(); }
  /// Null when it is not an M.
  template <class M>
  M* as() const {
    return dynamic_cast<M*>(&held_->get());
  }

 private:
  struct Holder {
    virtual ~Holder() = default;
    virtual Module& get() = 0;
    virtual std::shared_ptr<Holder> copy() const = 0;
  };
  template <class M>
  struct Held final : Holder {
    M module;
    explicit Held(const M& m) : module(m) {}
    Module& get() override { return module; }
    std::shared_ptr<Holder> copy() const override { return std::make_shared<Held>(module); }
  };

  std::shared_ptr<Holder> held_;
};

struct NamedModule {
  std::string name;
  AnyModule module;
};

template <class M>
requires kIsModule<M> M Module::add(const std::string& name, const M& module) {
  add(name, AnyModule(module));
  return module;
}

/// A base for modules that know their type: what returns the module returns a Self.
template <class Self>
class ModuleOf : public Module {
 public:
  Self clone() const { return nn::clone(static_cast<const Self&>(*this)); }
  Self& to(Context context) { return self(Module::to(context)); }
  Self& to(DType dtype) { return self(Module::to(dtype)); }
  Self& requires_grad_(bool on = true) { return self(Module::requires_grad_(on)); }
  Self& train(bool on = true) { return self(Module::train(on)); }
  Self& eval() { return train(false); }
  Self& apply(const std::function<void(Module&)>& f) { return self(Module::apply(f)); }

 private:
  static Self& self(Module& module) { return static_cast<Self&>(module); }
};

/// The tree of modules with their extra().
std::string to_string(const Module& module);
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace mx::nn
