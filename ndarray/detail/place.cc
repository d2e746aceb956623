#include "ndarray/detail/place.h"

#include <exception>
#include <string_view>
#include <typeinfo>

#include "engine/base/error.h"
#include "ndarray/detail/describe.h"

namespace mx::detail {
namespace {

/// Returns true for a file of the folders of the library. They are beside the folder of this file.
bool is_library(std::string_view file) {
  constexpr std::string_view kThis = __FILE__, kName = "ndarray/detail/place.cc";
  static_assert(kThis.ends_with(kName));
  constexpr std::string_view kRoot = kThis.substr(0, kThis.size() - kName.size());
  if (kRoot.empty() || !file.starts_with(kRoot)) return false;
  file.remove_prefix(kRoot.size());
  for (const std::string_view folder :
       {"ndarray/", "operators/", "executor/", "optim/", "nn/", "kvstore/", "comm/"})
    if (file.starts_with(folder)) return true;
  return false;
}

/// Returns the type of an exception; null for one that does not derive from std::exception.
const std::type_info* type_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& e) {
    return &typeid(e);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

std::string place_of(const std::source_location& where) {
  if (where.line() == 0 || is_library(where.file_name())) return {};
  return concat(where.file_name(), ':', where.line());
}

std::string called_at(const std::source_location& where) {
  const std::string place = place_of(where);
  return place.empty() ? place : " (called at " + place + ')';
}

void rethrow_at(const std::source_location& where) {
  const std::string end = called_at(where);
  if (end.empty() || current_exception_text().find("called at ") != std::string::npos) throw;
  const std::exception_ptr longer =
      rewrite_current_exception([&](const std::string& text) { return text + end; });
  const std::type_info *type = type_of(longer), *before = type_of(std::current_exception());
  if (type == nullptr || before == nullptr || *type != *before) throw;
  std::rethrow_exception(longer);
}

}  // namespace mx::detail
