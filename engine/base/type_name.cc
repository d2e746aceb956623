#include "engine/base/type_name.h"

#include <cxxabi.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace mx::detail {

std::string short_type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  const std::string full = status == 0 ? text.get() : type.name();
  // Colons inside brackets belong to arguments: the short name of "a::B<c::D>" is "B<c::D>".
  size_t from = 0;
  int depth = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    if (full[i] == '<' || full[i] == '(') ++depth;
    if (full[i] == '>' || full[i] == ')') --depth;
    if (depth == 0 && full[i] == ':') from = i + 1;
  }
  return full.substr(from);
}

}  // namespace mx::detail
