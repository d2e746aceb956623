// Modules made of modules: one after the other, and around.
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

/// One after the other.
///
///   nn::Sequential net{nn::Linear{784, 64}, nn::ReLU{}, Block{64}, nn::Linear{64, 10}};    // "0", "1", ..
///   nn::Sequential named{{"hidden", nn::Linear{784, 64}}, {"act", nn::ReLU{}}};
///
/// Any type of module fits. Of nothing it is the identity. (From a single Sequential it is a copy;
/// push_back() nests.)
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

  /// Behind the last, with its number as name or another one. Throws InvalidArgument for a name that is taken
  /// and a module that contains this one.
  Sequential& push_back(const AnyModule& module);
  Sequential& push_back(const std::string& name, const AnyModule& module);

  int64_t size() const { return static_cast<int64_t>(children().size()); }
  /// Number i; negative counts from the end. Throws InvalidArgument.
  const AnyModule& operator[](int64_t i) const;
  /// The same, which must be an M: net.at<nn::Linear>(0).weight. Throws InvalidArgument.
  template <class M>
  M& at(int64_t i) const {
    const AnyModule& module = (*this)[i];
    if (M* found = module.as<M>()) return *found;
    throw_other_type(i, *module, typeid(M));
  }
  /// Those from `first` up to but without `last`, with their names: another Sequential of the same modules.
  Sequential slice(int64_t first, int64_t last) const;

 private:
  [[noreturn]] static void throw_other_type(int64_t i, const Module& got, const std::type_info& expected);
};

/// shortcut(x) + body(x); without a shortcut x + body(x). The parts are "body" and "shortcut".
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
