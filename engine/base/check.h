// MX_CHECK: preconditions of public functions, with a message that says what was expected and what was got.
//
//   MX_CHECK(n > 0, InvalidArgument, "[full] expected a positive size, got ", n);
//
// The message parts are streamed, and only when the check fails.
#pragma once

#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <type_traits>

#include "engine/base/error.h"

namespace mx::detail {

/// A part of a message, of any type that can be streamed.
struct MessagePart {
  void (*write)(std::ostream& out, const void* value);
  const void* value;
};

void write_text(std::ostream& out, const void* text);
template <class T>
void write_value(std::ostream& out, const void* value) {
  out << *static_cast<const T*>(value);
}

template <class T>
MessagePart message_part(const T& value) {
  if constexpr (std::is_convertible_v<const T&, const char*>) {
    return {write_text, static_cast<const char*>(value)};
  } else {
    return {write_value<T>, std::addressof(value)};
  }
}

std::string concat_parts(std::initializer_list<MessagePart> parts);

/// Returns the parts as a stream prints them, one after another. The work is in concat_parts(), so that each
/// of the many calls adds little code.
template <class... Parts>
std::string concat(const Parts&... parts) {
  return concat_parts({message_part(parts)...});
}

/// Prints the condition and its place, and aborts the process: an invariant of the library itself is broken,
/// so continuing would give wrong results.
[[noreturn]] void invariant_failed(const char* condition, const char* file, int line);

}  // namespace mx::detail

#define MX_CHECK(condition, ErrorType, ...)               \
  do {                                                    \
    if (!(condition)) [[unlikely]]                        \
      throw ErrorType(::mx::detail::concat(__VA_ARGS__)); \
  } while (false)

/// An invariant of the library, checked in debug and sanitizer builds only.
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#  define MX_ASSERT(condition) \
    ((condition) ? (void)0 : ::mx::detail::invariant_failed(#condition, __FILE__, __LINE__))
namespace mx::detail {
inline constexpr bool kAssertions = true;
}
#else
#  define MX_ASSERT(condition) ((void)0)
namespace mx::detail {
inline constexpr bool kAssertions = false;
}
#endif
