// Errors of reading and writing files.
//
// FileError: the operating system refused something. FormatError: the bytes are not what the format says.
// Both are immutable, as every mx::Error.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/error.h"

namespace mx {

/// A call to the operating system failed. The message has everything that the accessors have.
class FileError : public Error {
 public:
  /// `code` is an errno value, or 0 if the file itself is not acceptable (a folder, a device). `detail` is
  /// appended to the text of `code` and may be empty.
  FileError(const std::string& operation, const std::string& path, int code, const std::string& detail);

  /// The operation that failed: "open", "write", "fsync", "rename", ...
  const std::string& operation() const { return operation_; }
  const std::string& path() const { return path_; }
  int code() const { return code_; }

 private:
  std::string operation_, path_;
  int code_;
};

/// A file is damaged, hostile, or of an unsupported kind. The message states the expected value, the actual
/// value and the place: the file, and the tensor or the byte offset within it.
class FormatError : public Error {
 public:
  using Error::Error;
};

namespace io {
/// Throws InvalidArgument, naming `operation`, for a path that contains a byte of value 0: the system would
/// end the path there.
void check_path(const std::string& path, const char* operation);
}  // namespace io

}  // namespace mx
