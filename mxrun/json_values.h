// Reads JSON that another process has sent: each value is checked for its type and its range.
//
// The functions throw ProtocolError with the name and the expectation; read_json() adds what the text should
// have been.
//
// Thread-safety: functions without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/text.h"

namespace mx::launch {

/// Returns read(JSON of the text). `what` names the text in the message of the ProtocolError that is thrown
/// if it is not JSON, or if `read` throws one: "the plan of a node".
template <class F>
auto read_json(const std::string& text, const char* what, F&& read) {
  try {
    return read(nlohmann::json::parse(text));
  } catch (const ProtocolError& error) {
    throw ProtocolError(
        mx::detail::concat("[mxrun] expected ", what, ", got ", text::quoted(text), ": ", error.what()));
  } catch (const nlohmann::json::exception&) {
    throw ProtocolError(
        mx::detail::concat("[mxrun] expected ", what, ", got ", text::quoted(text), ", which is not JSON"));
  }
}

/// Returns the member of an object.
const nlohmann::json& member(const nlohmann::json& object, const char* name);
/// Returns the member as a list.
const nlohmann::json& list_of(const nlohmann::json& object, const char* name);
/// Returns the list if it has `size` values.
const nlohmann::json& tuple(const nlohmann::json& list, size_t size, const char* name);

// Values. `name` is for the message.
int64_t whole_number(const nlohmann::json& value, const char* name, int64_t least, int64_t most);
std::string text_value(const nlohmann::json& value, const char* name);

// Members of objects.
template <class T = int>
T number_of(const nlohmann::json& object, const char* name, T least, T most) {
  return static_cast<T>(whole_number(member(object, name), name, least, most));
}
bool flag_of(const nlohmann::json& object, const char* name);
std::string text_of(const nlohmann::json& object, const char* name);
/// A text of at most `longest` bytes without control characters, which can be a part of a line.
std::string name_of(const nlohmann::json& object, const char* name, size_t longest);

}  // namespace mx::launch
