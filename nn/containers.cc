#include "nn/containers.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/activations.h"
#include "nn/detail/call_site.h"
#include "nn/pooling.h"
#include "operators/elementwise_binary.h"

namespace mx::nn {

namespace {

const AnyModule& module_at(const std::vector<NamedModule>& modules, int64_t i, const char* container) {
  const auto size = static_cast<int64_t>(modules.size());
  const int64_t at = i < 0 ? i + size : i;
  MX_CHECK(at >= 0 && at < size, InvalidArgument, "[", container,
           "] expected an index below the number of modules, ", size, ", got ", i);
  return modules[static_cast<size_t>(at)].module;
}

/// Returns true for a ReLU and a max pooling behind it. The ReLU of the largest element is the largest ReLU,
/// with the same gradient, and the result of the pooling is several times smaller than its input.
bool pools_before_relu(const Module& first, const Module& second) {
  if (typeid(first) != typeid(ReLU) || first.observed() || second.observed()) return false;
  const std::type_info& type = typeid(second);
  return type == typeid(MaxPool2d) || type == typeid(MaxPool1d) || type == typeid(MaxPool3d);
}

}  // namespace

void detail::throw_other_type(const char* container, const std::string& which, const Module& got,
                              const std::type_info& expected) {
  throw InvalidArgument(mx::detail::concat("[", container, "] expected module ", which, " to be a ",
                                           short_name(expected), ", got a ", got.type_name()));
}

Sequential::Sequential(std::initializer_list<NamedModule> modules, std::source_location where) try {
  for (const NamedModule& entry : modules) push_back(entry.name, entry.module);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

Sequential::Sequential(const std::vector<AnyModule>& modules) {
  for (const AnyModule& module : modules) push_back(module);
}

NDArray Sequential::forward(const NDArray& x) {
  NDArray y = x;
  const std::source_location where = detail::call_site();
  const std::vector<NamedModule>& modules = children();
  for (size_t i = 0; i < modules.size(); ++i) {
    if (i + 1 < modules.size() && pools_before_relu(*modules[i].module, *modules[i + 1].module)) {
      y = modules[i + 1].module(y, where);
      y = modules[i].module(y, where);
      ++i;
    } else {
      y = modules[i].module(y, where);
    }
  }
  return y;
}

Sequential& Sequential::push_back(const AnyModule& module) {
  return push_back(std::to_string(size()), module);
}

Sequential& Sequential::push_back(const std::string& name, const AnyModule& module) {
  add(name, module);
  return *this;
}

const AnyModule& Sequential::operator[](IntArg i) const { return module_at(children(), i, "Sequential"); }

Sequential Sequential::slice(IntArg first, IntArg last) const {
  MX_CHECK(first >= 0 && first <= last && last <= size(), InvalidArgument,
           "[slice] expected a range within the ", size(), " modules, got ", first, " to ", last);
  Sequential part;
  for (int64_t i = first; i < last; ++i) {
    const NamedModule& entry = children()[static_cast<size_t>(i)];
    part.push_back(entry.name, entry.module);
  }
  return part;
}

Residual::Residual(const AnyModule& body) : body_(body) { add("body", body); }

Residual::Residual(const AnyModule& body, const AnyModule& shortcut) : body_(body), shortcut_(shortcut) {
  add("body", body);
  add("shortcut", shortcut);
}

NDArray Residual::forward(const NDArray& x) {
  const std::source_location where = detail::call_site();
  const NDArray y = body_(x, where);
  return mx::add({shortcut_ ? (*shortcut_)(x, where) : x, where}, y);
}

ModuleList& ModuleList::push_back(const AnyModule& module) {
  add(std::to_string(size()), module);
  return *this;
}

ModuleList& ModuleList::extend(const std::vector<AnyModule>& modules) {
  for (const AnyModule& module : modules) push_back(module);
  return *this;
}

const AnyModule& ModuleList::operator[](IntArg i) const { return module_at(children(), i, "ModuleList"); }

ModuleDict::ModuleDict(std::initializer_list<NamedModule> modules, std::source_location where) try {
  for (const NamedModule& entry : modules) insert(entry.name, entry.module);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

ModuleDict& ModuleDict::insert(const std::string& name, const AnyModule& module) {
  add(name, module);
  return *this;
}

bool ModuleDict::contains(const std::string& name) const {
  return std::any_of(begin(), end(), [&](const NamedModule& entry) { return entry.name == name; });
}

std::vector<std::string> ModuleDict::keys() const {
  std::vector<std::string> names;
  for (const NamedModule& entry : *this) names.push_back(entry.name);
  return names;
}

Lambda::Lambda(std::function<NDArray(const NDArray&)> f, std::source_location where) try : f_(std::move(f)) {
  MX_CHECK(f_ != nullptr, InvalidArgument, "[Lambda] expected a function, got an empty one");
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray Lambda::forward(const NDArray& x) { return f_(x); }

}  // namespace mx::nn
