// Classes of Unicode characters, and UTF-8. Internal to the tokeniser. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mx::data {

/// The general categories L and N, and the property White_Space.
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_white_space(char32_t c);

/// Stands for a byte that is not part of valid UTF-8; it is in none of the classes.
inline constexpr char32_t kInvalidByte = 0xffffffff;

struct CodePoint {
  char32_t code;
  size_t bytes;
};
/// Returns the code point at a place, or kInvalidByte of one byte. Precondition: at < text.size().
CodePoint next_code_point(std::string_view text, size_t at);
std::string utf8(char32_t c);

}  // namespace mx::data
