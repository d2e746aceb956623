// MX_CHECK: preconditions of public functions, with a message that says what was expected and what came.
//
//   MX_CHECK(n > 0, InvalidArgument, "[full] expected a positive size, got ", n);
//
// The message parts are streamed, and only when the check fails.
#pragma once

#include <sstream>
#include <string>

#include "engine/base/error.h"

namespace mx::detail {

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Ends the process after printing the text: an invariant of the library itself is broken, and going on
/// would deliver wrong results.
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
#else
#  define MX_ASSERT(condition) ((void)0)
#endif
