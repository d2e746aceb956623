// Errors of process 0 on their way to the others, with their types. Internal.
//
// If process 0 fails to read or write a file, all processes throw its error. The types of the errors of
// files survive, because programs catch them: a FileError of load() may mean that there is nothing to load.
//
// Thread-safety: functions without state.
#pragma once

#include <exception>
#include <string>

namespace mx::detail {

/// Returns a text without bytes of value 0; empty for no error.
std::string pack_error(const std::exception_ptr& error);
/// Returns whether a text comes from pack_error(). No error of the library has such a message.
bool is_packed_error(const std::string& text);
/// Throws the error again. One whose type is not known here becomes an mx::Error.
[[noreturn]] void throw_packed_error(const std::string& packed);

}  // namespace mx::detail
