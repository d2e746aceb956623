// Small helpers for texts: of the parsers in this folder, and of the rest of mxrun.
//
// Thread-safety: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mx::launch::text {

/// Returns the number if `digits` are 1 to 9 decimal digits and nothing else.
std::optional<int> parse_number(std::string_view digits);
/// Returns the text without spaces, tabs and carriage returns at both ends.
std::string_view trimmed(std::string_view text);
/// Returns the text in quotes for a message: unprintable characters escaped, and cut after 80 characters.
std::string quoted(std::string_view text);
/// Returns a message that quotes what others have written as one line: control characters escaped, and cut
/// after 2000 characters.
std::string in_one_line(std::string_view message);
/// Returns the message of an error without "[mxrun] ", for lines that begin with the name of mxrun anyway.
std::string_view without_place(std::string_view message);
/// Returns two hexadecimal digits for each byte.
std::string hexadecimal(std::string_view bytes);
/// Returns the bytes of hexadecimal() again; nothing if the text is anything else.
std::optional<std::string> from_hexadecimal(std::string_view digits);
enum class Zone { local, utc };
/// Returns the time as "2026-11-25T17:04:05.123".
std::string time_now(Zone zone);
/// Returns the words between spaces and tabs.
std::vector<std::string_view> words(std::string_view line);

}  // namespace mx::launch::text
