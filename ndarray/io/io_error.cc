#include "ndarray/io/io_error.h"

#include <system_error>

#include "engine/base/check.h"
#include "ndarray/io/tensor_record.h"

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

void io::check_path(const std::string& path, const char* operation) {
  MX_CHECK(path.find('\0') == std::string::npos, InvalidArgument, "[", operation,
           "] expected a path without bytes of value 0, got ", in_quotes(path));
}

}  // namespace mx
