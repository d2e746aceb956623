#include "kvstore/packed_error.h"

#include <cstdio>

#include "engine/base/error.h"
#include "ndarray/io/io_error.h"

// A packed error is "\x01packed ", one character for the type, and the message. A FileError has its parts
// before the rest of its message: "errno operation-size path-size " and then the operation, the path, the
// rest.
namespace mx::detail {
namespace {

constexpr char kMark[] = "\x01packed ";
constexpr size_t kMarkSize = sizeof kMark - 1;

enum class ErrorKind : char {
  invalid_argument = 'a',
  invalid_state = 's',
  file = 'f',
  format = 'm',
  out_of_memory = 'o',
  other = 'e',
};

std::string packed_text(ErrorKind kind, const std::string& text) {
  return kMark + std::string(1, static_cast<char>(kind)) + text;
}

/// Returns the end of the message of a FileError, behind the operation, the path and the text of the error
/// number.
std::string detail_of(const FileError& error) {
  const std::string whole = error.what();
  std::string without = FileError(error.operation(), error.path(), error.code(), "").what();
  if (error.code() != 0) without += ", ";
  return whole.starts_with(without) ? whole.substr(without.size()) : std::string();
}

[[noreturn]] void throw_file_error(const std::string& text) {
  int code = 0, start = 0;
  size_t operation = 0, path = 0;
  const bool whole = std::sscanf(text.c_str(), "%d %zu %zu %n", &code, &operation, &path, &start) == 3;
  const auto begin = static_cast<size_t>(start);
  if (!whole || operation > text.size() || path > text.size() || begin + operation + path > text.size())
    throw Error("[KVStore] expected an error of rank 0, got " + std::to_string(text.size()) + " bytes");
  const std::string rest = text.substr(begin + operation + path);
  throw FileError(text.substr(begin, operation), text.substr(begin + operation, path), code,
                  rest + (rest.empty() ? "on rank 0" : ", on rank 0"));
}

}  // namespace

std::string pack_error(const std::exception_ptr& error) {
  if (error == nullptr) return {};
  try {
    std::rethrow_exception(error);
  } catch (const FileError& e) {
    return packed_text(ErrorKind::file,
                       std::to_string(e.code()) + ' ' + std::to_string(e.operation().size()) + ' ' +
                           std::to_string(e.path().size()) + ' ' + e.operation() + e.path() + detail_of(e));
  } catch (const FormatError& e) {
    return packed_text(ErrorKind::format, e.what());
  } catch (const InvalidArgument& e) {
    return packed_text(ErrorKind::invalid_argument, e.what());
  } catch (const InvalidState& e) {
    return packed_text(ErrorKind::invalid_state, e.what());
  } catch (const OutOfMemory& e) {
    return packed_text(ErrorKind::out_of_memory, e.what());
  } catch (...) {
    return packed_text(ErrorKind::other, current_exception_text());
  }
}

bool is_packed_error(const std::string& text) {
  return text.size() > kMarkSize && text.compare(0, kMarkSize, kMark) == 0;
}

void throw_packed_error(const std::string& packed) {
  if (!is_packed_error(packed)) throw Error(packed);
  const std::string text = packed.substr(kMarkSize + 1);
  switch (static_cast<ErrorKind>(packed[kMarkSize])) {
    case ErrorKind::file:
      throw_file_error(text);
    case ErrorKind::format:
      throw FormatError(text);
    case ErrorKind::invalid_argument:
      throw InvalidArgument(text);
    case ErrorKind::invalid_state:
      throw InvalidState(text);
    case ErrorKind::out_of_memory:
      throw OutOfMemory(text);
    case ErrorKind::other:
      break;
  }
  throw Error(text);
}

}  // namespace mx::detail
