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
//   Block other = block.clone();          // its own parameters
//
// A module is a handle, as NDArray is: copies share parameters, buffers, parts, hooks and the training flag;
// to() and load_state_dict() change what all copies see. Other members of a struct (numbers, NDArrays that it
// did not add) are copied as C++ copies them.
//
// A struct registers its parts by add(), its parameters by add_parameter() and its buffers by add_buffer(),
// in its constructor. Assigning another module to a member later does not register that module; replace()
// does:
//
//   net.head = net.replace("head", nn::Linear(512, 10));
//
// A module with parameters that is called inside another one without being registered is named once in the
// log. Hold modules and parameters as values, also in std::vector, std::optional or AnyModule: clone() does
// not find modules and parameters that are held by pointer or reference.
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
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "nn/detail/call_arrays.h"
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

/// True if M is a type derived from Module, so that it can be held as a value.
template <class M>
inline constexpr bool kIsModule = std::is_base_of_v<Module, M> && !std::is_same_v<Module, M>;

/// Receives a call's inputs before forward(), and may replace them.
using ForwardPreHook = std::function<void(const Module&, std::vector<NDArray>& inputs)>;
/// Receives a call's inputs and outputs after forward(), and may replace the outputs. A hook must not own its
/// module: the module owns the hook, so neither would ever be freed. The hook receives the module as an
/// argument.
using ForwardHook =
    std::function<void(const Module&, std::span<const NDArray> inputs, std::vector<NDArray>& outputs)>;

/// Receives the gradients of a call's outputs in the backward pass, before the gradients in the module are
/// computed, and may replace them. An empty handle stands for an array without gradient. A hook that changes
/// their number or the shape of one is an error of the backward pass: InvalidArgument.
using BackwardPreHook = std::function<void(const Module&, std::vector<NDArray>& output_gradients)>;
/// Receives the gradients of a call's inputs, which it may replace by others of the same number and shapes,
/// and of its outputs. An empty handle stands for an array without gradient. If no input needs a gradient, it
/// is called as soon as the gradients of the outputs are there, and `input_gradients` has empty handles only.
/// There is one output gradient for each output. All are empty if the pass does not reach the outputs; with
/// several passes at once through a retained graph, they may be those of another pass.
using BackwardHook = std::function<void(const Module&, std::vector<NDArray>& input_gradients,
                                        std::span<const NDArray> output_gradients)>;

using mx::HookHandle;

struct LoadOptions {
  bool strict = true;  ///< false: missing and unexpected names are skipped and reported
};
/// The names that a load with LoadOptions::strict = false has skipped.
struct LoadReport {
  std::vector<std::string> missing;     ///< names of the module that were not loaded
  std::vector<std::string> unexpected;  ///< loaded names that the module does not have
};

class Module {
 public:
  virtual ~Module();

  /// Runs the pre-hooks, forward() and the hooks. If one of them throws an error of the library, each
  /// enclosing module appends a line to the message, with its name and the line of the program that called it
  /// (`where`). Errors of library layers that appear later, when an operation runs, name that line too.
  NDArray operator()(const NDArray& x, std::source_location where = std::source_location::current()) const;
  /// Computes the module's output; derived types override it. A module with other inputs or outputs derives
  /// from ModuleOf, whose operator() takes what its forward() takes.
  virtual NDArray forward(const NDArray& x);

  // Arrays. A parameter with several names is listed under the first one only, but state_dict() lists all
  // names.

  /// Parameters with their names, for optimisers and loops:
  /// `for (const auto& [name, p] : net.parameters())`, `for (const NDArray& p : net.parameters())`.
  Parameters parameters() const;
  /// Same as parameters(): PyTorch's name for it.
  Parameters named_parameters() const { return parameters(); }
  std::vector<NDArray> buffers() const;
  NamedArrays named_buffers() const;
  /// Returns the parameter or buffer with that name ("0.weight"). Throws InvalidArgument if there is none;
  /// the message lists the names.
  Parameter parameter(const std::string& name) const;
  /// Returns the number of elements of all parameters.
  int64_t num_parameters() const;

  /// Returns the parameters and the persistent buffers: the arrays themselves, detached, not copies. A read,
  /// by save_safetensors for example, takes the values that the calls before it have produced.
  NamedArrays state_dict() const;
  /// Copies `arrays` into the module's arrays and converts type and device; a type of a higher category
  /// cannot be converted. Throws one InvalidArgument that lists all mismatches, or the error of a poisoned
  /// array; in both cases nothing is changed. Waits for `arrays`.
  LoadReport load_state_dict(const NamedArrays& arrays, const LoadOptions& options = {});
  /// save() writes state_dict() to a safetensors file, and load() loads one. They also throw what
  /// save_safetensors and load_safetensors throw.
  void save(const std::string& path, const FileMetadata& metadata = {}) const;
  LoadReport load(const std::string& path, const LoadOptions& options = {});

  /// After a bad batch (docs/optim.md): parameters and buffers that are poisoned only by skipped updates,
  /// such as the running statistics of BatchNorm, hold their last good values again. Waits for them. Throws
  /// InvalidState, naming the arrays, if some are lost; the others are recovered then. Values are lost if
  /// their own operation has failed, and on an accelerator also if an update of a buffer was enqueued before
  /// the error was known. Load them then.
  void recover(std::source_location where = std::source_location::current());

  /// Moves parameters and buffers, with the parameters' gradients. Optimisers and trainers follow at their
  /// next call. An NDArray taken from the module earlier stays on the old device and no longer requires a
  /// gradient. A backward pass through operations that were recorded before the move throws InvalidState when
  /// it reaches a moved parameter. Waits for the copies: if the device does not exist or has too little
  /// memory, the error names the line of the call (`where`), and nothing is changed.
  Module& to(Context context, std::source_location where = std::source_location::current());
  /// Converts parameters and buffers of floating-point type. The same holds for a backward pass. Throws
  /// InvalidArgument if `dtype` is not one.
  Module& to(DType dtype, std::source_location where = std::source_location::current());
  /// Sets whether operations on the parameters are recorded.
  Module& requires_grad_(bool on = true);
  /// Removes the parameters' gradients.
  void zero_grad();

  /// Sets the mode of this module and of all modules in it.
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  /// Returns the mode that train() set last; initially true. In a call, a TrainMode or PredictMode scope of
  /// the thread takes precedence.
  bool training() const;

  // Parts.

  const std::vector<NamedModule>& children() const;
  /// Registers another module in place of the child `name`, and returns it, for the member that forward()
  /// uses. Optimisers and trainers hold the old parameters, so make them afterwards. Throws InvalidArgument
  /// if there is no child of that name; the message lists the names.
  template <class M>
  requires kIsModule<M> M replace(const std::string& name, const M& module);
  void replace(const std::string& name, const AnyModule& module);
  /// Returns the part with that path ("0.fc1"). Throws InvalidArgument if there is none; the message lists
  /// the names.
  const AnyModule& child(const std::string& path) const;
  /// Returns this module, under the name "", and all modules in it, each once; a module comes before its
  /// parts. The pointers are valid as long as this module.
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// Calls f for all modules in this one, each once, and last for this module; parts come before their
  /// module.
  Module& apply(const std::function<void(Module&)>& f);

  /// Hooks are called in the order in which they were registered. Copies share hooks; a clone has copies of
  /// them. Throws InvalidArgument for an empty function.
  HookHandle register_forward_pre_hook(ForwardPreHook hook);
  HookHandle register_forward_hook(ForwardHook hook);
  /// Hooks of the backward pass. They run for calls that were recorded after the registration; within the
  /// hook, arrays are recorded only if gradients of gradients are requested. A backward pass may run on
  /// another thread than the call.
  HookHandle register_backward_pre_hook(BackwardPreHook hook);
  HookHandle register_backward_hook(BackwardHook hook);

  /// Returns a table with every module's path and type, the shape and bytes of its output for this input, and
  /// the number of elements of its own parameters and their bytes with its buffers. Training keeps most
  /// outputs until the backward pass, so their sum tells about how much memory a batch takes. Runs the module
  /// without recording and in predict mode.
  std::string summary(const NDArray& x) const;
  /// Uses zeros of this shape as input, on the device of the first parameter.
  std::string summary(const Shape& x, DType dtype = f32) const;
  /// Returns the table without shapes; runs nothing.
  std::string summary() const;

  /// Returns a copy with its own parameters and buffers, without gradients: `Block b = a.clone();`. The type
  /// must be written out; nn::clone(a) and modules derived from ModuleOf<Block> deduce it.
  Cloned clone() const;

  /// The name of the type ("Block") for errors, printing and summary().
  virtual std::string type_name() const;
  /// Further text for printing: "in=3, out=4".
  virtual std::string extra() const { return ""; }

  /// Returns a pointer that is equal for all copies of a module, and differs for others.
  const void* identity() const { return state_.get(); }
  /// Returns true if the next call must show its arrays: to hooks, or to summary().
  bool observed() const;

 protected:
  Module();
  // Protected: a copy of the base alone would lose forward().
  Module(const Module& other);
  Module& operator=(const Module& other);

  // Registration. All throw InvalidArgument for a name that is empty, taken or contains a dot, and for a name
  // that a file cannot store (check_saveable_name). Those with a result return what they registered.

  Parameter add_parameter(const std::string& name, const NDArray& value, bool requires_grad = true);
  /// A persistent buffer is part of state_dict().
  Parameter add_buffer(const std::string& name, const NDArray& value, bool persistent = true);
  /// A module may be part of several, but not of itself.
  template <class M>
  requires kIsModule<M> M add(const std::string& name, const M& module);
  void add(const std::string& name, const AnyModule& module);
  void add(const std::string& name, const NDArray&) = delete;  ///< use add_parameter() or add_buffer()

  /// Returns the mode of the thread's TrainMode or PredictMode scope if there is one, otherwise training().
  bool train_mode() const;

  /// Calls body(). Errors of the library get a line with this module's name. `where`: the line that called
  /// operator(); line 0 if it is not known.
  void enter(const std::function<void()>& body, std::source_location where) const;
  /// Runs the pre-hooks, `body` and the hooks. `where` as for enter().
  std::vector<NDArray> run(std::vector<NDArray> inputs,
                           const std::function<std::vector<NDArray>(std::span<const NDArray>)>& body,
                           std::source_location where = std::source_location::current()) const;

 private:
  friend struct detail::ModuleState;

  std::shared_ptr<detail::ModuleState> state_;
};

/// Returns a copy with its own parameters, for any type of module. Throws InvalidArgument if `module` is a
/// reference to an object of a type derived from M: the derived part would be lost.
template <class M>
requires kIsModule<M> M clone(const M& module) {
  if (typeid(module) != typeid(M)) detail::throw_not_whole("clone", module, typeid(M));
  const mx::detail::CloneScope scope;
  return M(module);
}

/// The result of Module::clone(), which converts to the type of the variable that it initialises. Valid only
/// within the expression.
class Cloned {
 public:
  explicit Cloned(const Module& module) : module_(module) {}
  Cloned(const Cloned&) = delete;
  /// Throws InvalidArgument if the module is not exactly an M.
  template <class M>
  requires kIsModule<M>
  operator M() && {
    if (typeid(module_) != typeid(M)) detail::throw_not_whole("clone", module_, typeid(M));
    return nn::clone(static_cast<const M&>(module_));
  }

 private:
  const Module& module_;
};

/// A module of any type, as a value: the element type of Sequential. Copies share the module.
class AnyModule {
 public:
  /// Throws InvalidArgument if `module` is a reference to an object of a type derived from M: the derived
  /// part would be lost.
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

  /// Returns a copy with its own parameters.
  AnyModule clone() const;

  NDArray operator()(const NDArray& x, std::source_location where = std::source_location::current()) const {
    return held_->get()(x, where);
  }
  Module& operator*() const { return held_->get(); }
  Module* operator->() const { return &held_->get(); }
  /// Returns the module as an M, or null if it is not one.
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

template <class M>
requires kIsModule<M> M Module::replace(const std::string& name, const M& module) {
  replace(name, AnyModule(module));
  return module;
}

/// A base class for modules of type Self: functions that return the module return it as a Self, and forward()
/// may have any arguments and any result:
///
///   struct Attend : nn::ModuleOf<Attend> {
///     std::pair<NDArray, NDArray> forward(const NDArray& q, const NDArray& k, const Mask& mask = {});
///   };
///   auto [y, weights] = attend(q, k);
///
/// Hooks see the arrays among the arguments and among the results (nn/detail/call_arrays.h says where they
/// are looked for). A braced list has no type of its own, so write `attend(q, k, Mask{...})`. Such a
/// forward() hides the virtual function of Module, as it should; Clang and GCC 13 warn of it with -Wall, and
/// -Wno-overloaded-virtual turns that off.
///
/// Modules that share code derive from a Base, whose constructor gets the arguments.
template <class Self, class Base = Module>
class ModuleOf : public Base {
  template <class T>
  static constexpr bool kIsArray = std::is_convertible_v<T, Arg> || std::is_convertible_v<T, NDArray>;

 public:
  ModuleOf() = default;
  template <class... Args>
  requires(sizeof...(Args) > 1) explicit ModuleOf(Args&&... args) : Base(std::forward<Args>(args)...) {}

  /// Calls forward(x), as Module::operator() does.
  template <class S = Self>
  auto operator()(const NDArray& x, std::source_location where = std::source_location::current()) const {
    if constexpr (kForwardIsVirtual<S>) {
      return Module::operator()(x, where);
    } else {
      return call(where, static_cast<const NDArray&>(x));
    }
  }
  /// Calls forward(first, rest...).
  template <class... Rest>
  requires(sizeof...(Rest) > 0 && !(std::is_same_v<std::decay_t<Rest>, std::source_location> || ...)) auto
  operator()(const Arg& first, Rest&&... rest) const {
    return call(first.where, first.array, std::forward<Rest>(rest)...);
  }
  /// Calls forward() whose first argument is no array, such as a PackedSequence.
  template <class First>
  requires(!kIsArray<First>) auto operator()(
      First&& first, std::source_location where = std::source_location::current()) const {
    return call(where, std::forward<First>(first));
  }
  template <class First, class Second>
  requires(!kIsArray<First> && !std::is_same_v<std::decay_t<Second>, std::source_location>) auto operator()(
      First&& first, Second&& second, std::source_location where = std::source_location::current()) const {
    return call(where, std::forward<First>(first), std::forward<Second>(second));
  }
  /// With more arguments, errors do not name the line of this call.
  template <class First, class Second, class Third, class... Rest>
  requires(!kIsArray<First> && !std::is_same_v<std::decay_t<Third>, std::source_location>) auto operator()(
      First&& first, Second&& second, Third&& third, Rest&&... rest) const {
    return call({}, std::forward<First>(first), std::forward<Second>(second), std::forward<Third>(third),
                std::forward<Rest>(rest)...);
  }

  Self clone() const { return nn::clone(static_cast<const Self&>(*this)); }
  Self& to(Context context, std::source_location where = std::source_location::current()) {
    return self(Module::to(context, where));
  }
  Self& to(DType dtype, std::source_location where = std::source_location::current()) {
    return self(Module::to(dtype, where));
  }
  Self& requires_grad_(bool on = true) { return self(Module::requires_grad_(on)); }
  Self& train(bool on = true) { return self(Module::train(on)); }
  Self& eval() { return train(false); }
  Self& apply(const std::function<void(Module&)>& f) { return self(Module::apply(f)); }

 private:
  static Self& self(Module& module) { return static_cast<Self&>(module); }

  /// True if Module::operator() reaches forward(): it overrides the virtual function, or cannot be called
  /// from here.
  template <class S>
  static constexpr bool kForwardIsVirtual = requires {
    static_cast<NDArray (S::*)(const NDArray&)>(&S::forward);
  }
  || !requires(S & s, const NDArray& x) { s.forward(x); };

  /// Calls forward() with the hooks around it.
  template <class... Args>
  auto call(std::source_location where, Args&&... args) const {
    // A module is a handle, so const does not apply to the shared state.
    Self& me = static_cast<Self&>(const_cast<ModuleOf&>(*this));
    using Result = std::decay_t<decltype(me.forward(std::forward<Args>(args)...))>;
    std::optional<Result> result;
    if (!this->observed()) {
      this->enter([&] { result.emplace(me.forward(std::forward<Args>(args)...)); }, where);
      return std::move(*result);
    }
    std::tuple<detail::Kept<Args>...> kept(std::forward<Args>(args)...);
    const std::vector<NDArray> outputs = this->run(
        detail::arrays_of(kept),
        [&](std::span<const NDArray> inputs) {
          detail::set_arrays(kept, inputs, this->type_name(), "inputs after the pre-hooks");
          std::apply([&](auto&... values) { result.emplace(me.forward(values...)); }, kept);
          return detail::arrays_of(*result);
        },
        where);
    detail::set_arrays(*result, outputs, this->type_name(), "outputs after the hooks");
    return std::move(*result);
  }
};

/// Returns the tree of modules, each with its extra(), as text.
std::string to_string(const Module& module);
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace mx::nn
