#include "ndarray/io/io_error.h"

#include <system_error>

namespace mx {
namespace {

std::string describe(const std::string& operation, const std::string& path, int code,
                     const std::string& detail) {
  std::string text = "[" + operation + "] '" + path + "': ";
  if (code != 0) text += std::generic_category().message(code) + " (errno " + std::to_string(code) + ")";
  if (code != 0 && !detail.empty()) text += ", ";
  return text + detail;
}

}  // namespace

FileError::FileError(const std::string& operation, const std::string& path, int code,
                     const std::string& detail)
    : Error(describe(operation, path, code, detail)), operation_(operation), path_(path), code_(code) {}

}  // namespace mx
