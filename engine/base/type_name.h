// Names of C++ types, for messages.
#pragma once

#include <string>
#include <typeinfo>

namespace mx::detail {

/// Returns the C++ name of the type without namespaces and enclosing functions: "Linear".
std::string short_type_name(const std::type_info& type);

}  // namespace mx::detail
