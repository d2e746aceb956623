// Adds the line of the call to errors. Internal.
//
//   NDArray f(const NDArray& x, std::source_location where) try {
//     ...                       // MX_CHECKs without the line
//   } catch (const Error&) {
//     detail::rethrow_at(where);
//   }
//
// A single check can name the line itself:
//
//   MX_CHECK(n > 0, InvalidArgument, "[f] expected a positive size, got ", n, detail::called_at(where));
//
// A line in the library is never named: the author of a program could not look at it. If a function of the
// library calls another one, the outer function names the line of the program.
#pragma once

#include <source_location>
#include <string>

namespace mx::detail {

/// Returns "FILE:LINE"; an empty string if `where` is in the library, or if its line is not known.
std::string place_of(const std::source_location& where);

/// Returns " (called at FILE:LINE)", the end of a message; an empty string where place_of() is empty.
std::string called_at(const std::source_location& where);

/// Rethrows the current exception, an Error, with called_at(where) at the end of its message. Leaves it as it
/// is if its message names a line already, and if it has a type of which this function cannot make another
/// one: FileError, FormatError, and types of the program. Precondition: called inside a catch block.
[[noreturn]] void rethrow_at(const std::source_location& where);

}  // namespace mx::detail
