// Modules made of other modules: Sequential and Residual.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "nn/module.h"

namespace mx::nn {

/// Applies modules in order: the output of each is the input of the next.
///
///   nn::Sequential net{nn::Linear{784, 64}, nn::ReLU{}, Block{64}, nn::Linear{64, 10}};    // "0", "1", ..
///   nn::Sequential named{{"hidden", nn::Linear{784, 64}}, {"act", nn::ReLU{}}};
///
/// It holds modules of any type. An empty Sequential is the identity. A Sequential constructed from one other
/// Sequential is a copy of it; to nest one, use push_back().
class Sequential : public ModuleOf<Sequential> {
 public:
  Sequential() = default;
  template <class... M>
  requires(sizeof...(M) > 0 && (kIsModule<M> && ...) &&
           !(sizeof...(M) == 1 &&
             (std::is_same_v<M, Sequential> && ...))) explicit Sequential(const M&... modules) {
    (push_back(modules), ...);
  }
  Sequential(std::initializer_list<NamedModule> modules);
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
    const AnyModule& module = (*this)[i];
    if (M* found = module.as<M>()) return *found;
    throw_other_type(i, *module, typeid(M));
  }
  /// Returns a Sequential of the modules [first, last), with their names. The modules are shared, not cloned.
  Sequential slice(IntArg first, IntArg last) const;

 private:
  [[noreturn]] static void throw_other_type(int64_t i, const Module& got, const std::type_info& expected);
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

}  // namespace mx::nn
