// Modules made of other modules or of functions: Sequential, Residual, ModuleList, ModuleDict, Lambda.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "nn/module.h"

namespace mx::nn {

namespace detail {
[[noreturn]] void throw_other_type(const char* container, const std::string& which, const Module& got,
                                   const std::type_info& expected);
inline const std::string& to_text(const std::string& name) { return name; }
inline std::string to_text(int64_t number) { return std::to_string(number); }

/// Returns the module as an M. Throws InvalidArgument, which names the container and `which` module it is.
template <class M, class Which>
M& module_as(const AnyModule& module, const char* container, const Which& which) {
  if (M* found = module.as<M>()) return *found;
  throw_other_type(container, to_text(which), *module, typeid(M));
}
}  // namespace detail

/// Applies modules in order: the output of each is the input of the next.
///
///   nn::Sequential net{nn::Linear{784, 64}, nn::ReLU{}, Block{64}, nn::Linear{64, 10}};    // "0", "1", ..
///   nn::Sequential named{{"hidden", nn::Linear{784, 64}}, {"act", nn::ReLU{}}};
///
/// If a max pooling follows a ReLU, the pooling runs first: the results and gradients are the same, and the
/// ReLU reads fewer elements. Modules with hooks keep their order. A Sequential holds modules of any type. An
/// empty one is the identity. A Sequential constructed from one other Sequential is a copy of it; to nest
/// one, use push_back().
class Sequential : public ModuleOf<Sequential> {
 public:
  Sequential() = default;
  template <class... M>
  requires(sizeof...(M) > 0 && (kIsModule<M> && ...) &&
           !(sizeof...(M) == 1 &&
             (std::is_same_v<M, Sequential> && ...))) explicit Sequential(const M&... modules) {
    (push_back(modules), ...);
  }
  Sequential(std::initializer_list<NamedModule> modules,
             std::source_location where = std::source_location::current());
  explicit Sequential(const std::vector<AnyModule>& modules);

  NDArray forward(const NDArray& x) override;

  /// Appends a module; without `name`, its number is its name. Throws InvalidArgument if the name is taken,
  /// or if `module` contains this one.
  Sequential& push_back(const AnyModule& module);
  Sequential& push_back(const std::string& name, const AnyModule& module);

  int64_t size() const { return static_cast<int64_t>(children().size()); }
  /// Module number i; a negative i counts from the end. Throws InvalidArgument if there is none.
  const AnyModule& operator[](IntArg i) const;
  /// Module number i as an M: net.at<nn::Linear>(0).weight. Throws InvalidArgument if it has another type.
  template <class M>
  M& at(IntArg i) const {
    return detail::module_as<M>((*this)[i], "Sequential", i);
  }
  /// Returns a Sequential of the modules [first, last), with their names. The modules are shared, not cloned.
  Sequential slice(IntArg first, IntArg last) const;
};

/// shortcut(x) + body(x), or x + body(x) without a shortcut. The parts are named "body" and "shortcut".
class Residual : public ModuleOf<Residual> {
 public:
  explicit Residual(const AnyModule& body);
  Residual(const AnyModule& body, const AnyModule& shortcut);
  NDArray forward(const NDArray& x) override;

 private:
  AnyModule body_;
  std::optional<AnyModule> shortcut_;
};

/// A list of modules, "0", "1", ..., for a struct that calls them itself. It cannot be called.
///
///   nn::ModuleList layers;                                  // in the constructor: add("layers", layers)
///   for (int i = 0; i < n; ++i) layers.push_back(Block(d));
///   for (const auto& [name, layer] : layers) x = layer(x);
///   auto [y, state] = layers.at<Cell>(0)(x, state);     // Cell: a ModuleOf with other arguments
class ModuleList : public ModuleOf<ModuleList> {
 public:
  ModuleList() = default;
  template <class... M>
  requires(sizeof...(M) > 0 && (kIsModule<M> && ...) &&
           !(sizeof...(M) == 1 &&
             (std::is_same_v<M, ModuleList> && ...))) explicit ModuleList(const M&... modules) {
    (push_back(modules), ...);
  }
  explicit ModuleList(const std::vector<AnyModule>& modules) { extend(modules); }

  ModuleList& push_back(const AnyModule& module);
  ModuleList& extend(const std::vector<AnyModule>& modules);

  int64_t size() const { return static_cast<int64_t>(children().size()); }
  bool empty() const { return children().empty(); }
  /// Module number i; a negative i counts from the end. Throws InvalidArgument if there is none.
  const AnyModule& operator[](IntArg i) const;
  /// Module number i as an M. Throws InvalidArgument if it has another type.
  template <class M>
  M& at(IntArg i) const {
    return detail::module_as<M>((*this)[i], "ModuleList", i);
  }
  std::vector<NamedModule>::const_iterator begin() const { return children().begin(); }
  std::vector<NamedModule>::const_iterator end() const { return children().end(); }
};

/// Modules with names, in the order in which they were added, for a struct that calls them itself. It cannot
/// be called.
class ModuleDict : public ModuleOf<ModuleDict> {
 public:
  ModuleDict() = default;
  ModuleDict(std::initializer_list<NamedModule> modules,
             std::source_location where = std::source_location::current());

  /// Throws InvalidArgument if the name is taken.
  ModuleDict& insert(const std::string& name, const AnyModule& module);

  int64_t size() const { return static_cast<int64_t>(children().size()); }
  bool empty() const { return children().empty(); }
  bool contains(const std::string& name) const;
  std::vector<std::string> keys() const;
  /// Throws InvalidArgument if there is none of that name; the message lists the names.
  const AnyModule& operator[](const std::string& name) const { return child(name); }
  /// The module of that name as an M. Throws InvalidArgument if it has another type.
  template <class M>
  M& at(const std::string& name) const {
    return detail::module_as<M>((*this)[name], "ModuleDict", name);
  }
  std::vector<NamedModule>::const_iterator begin() const { return children().begin(); }
  std::vector<NamedModule>::const_iterator end() const { return children().end(); }
};

/// A function as a module: nn::Lambda([](const NDArray& x) { return x * 2; }). Copies and clones have copies
/// of the function; parameters that it captures are not registered.
class Lambda : public ModuleOf<Lambda> {
 public:
  /// Throws InvalidArgument for an empty function.
  explicit Lambda(std::function<NDArray(const NDArray&)> f,
                  std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;

 private:
  std::function<NDArray(const NDArray&)> f_;
};

}  // namespace mx::nn
