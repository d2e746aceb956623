// Adds the line of the call to errors. Internal.
//
//   NDArray f(const NDArray& x, std::source_location where) try {
//     ...                       // MX_CHECKs without the line
//   } catch (const Error&) {
//     detail::rethrow_at(where);
//   }
#pragma once

#include <source_location>

namespace mx::detail {

/// Rethrows the current exception, an Error, with " (called at FILE:LINE)" at the end of its message. Leaves
/// it as it is if its message has such a line already, or if `where` is in the library: a function of the
/// library that calls another one has no line that the author of a program could look at. Precondition:
/// called inside a catch block.
[[noreturn]] void rethrow_at(const std::source_location& where);

}  // namespace mx::detail
