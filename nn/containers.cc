#include "nn/containers.h"

#include "engine/base/check.h"
#include "nn/detail/call_site.h"
#include "operators/elementwise_binary.h"

namespace mx::nn {

Sequential::Sequential(std::initializer_list<NamedModule> modules) {
  for (const NamedModule& entry : modules) push_back(entry.name, entry.module);
}

Sequential::Sequential(const std::vector<AnyModule>& modules) {
  for (const AnyModule& module : modules) push_back(module);
}

NDArray Sequential::forward(const NDArray& x) {
  NDArray y = x;
  const std::source_location where = detail::call_site();
  for (const NamedModule& entry : children()) y = entry.module(y, where);
  return y;
}

Sequential& Sequential::push_back(const AnyModule& module) {
  return push_back(std::to_string(size()), module);
}

Sequential& Sequential::push_back(const std::string& name, const AnyModule& module) {
  add(name, module);
  return *this;
}

const AnyModule& Sequential::operator[](IntArg i) const {
  const int64_t at = i < 0 ? i + size() : int64_t{i};
  MX_CHECK(at >= 0 && at < size(), InvalidArgument,
           "[Sequential] expected an index below the number of modules, ", size(), ", got ", i);
  return children()[static_cast<size_t>(at)].module;
}

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

void Sequential::throw_other_type(int64_t i, const Module& got, const std::type_info& expected) {
  throw InvalidArgument(mx::detail::concat("[Sequential] expected module ", i, " to be a ",
                                           detail::short_name(expected), ", got a ", got.type_name()));
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

}  // namespace mx::nn
