#include "ndarray/detail/place.h"

#include <string_view>

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

}  // namespace

void rethrow_at(const std::source_location& where) {
  if (where.line() == 0 || is_library(where.file_name()) ||
      current_exception_text().find("called at ") != std::string::npos)
    throw;
  std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
    return concat(text, " (called at ", where.file_name(), ':', where.line(), ')');
  }));
}

}  // namespace mx::detail
