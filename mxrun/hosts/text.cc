#include "mxrun/hosts/text.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>

namespace mx::launch::text {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

/// Appends the byte, or its number if it is not to be printed.
void append_escaped(std::string& out, unsigned char byte, bool escape) {
  if (escape)
    out += {'\\', 'x', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  else
    out += static_cast<char>(byte);
}

}  // namespace

std::optional<int> parse_number(std::string_view digits) {
  if (digits.empty() || digits.size() > 9) return std::nullopt;
  for (char c : digits)
    if (c < '0' || c > '9') return std::nullopt;
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::string_view without_place(std::string_view message) {
  constexpr std::string_view kPlace = "[mxrun] ";
  if (message.starts_with(kPlace)) message.remove_prefix(kPlace.size());
  return message;
}

std::string hexadecimal(std::string_view bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());
  for (const char c : bytes) {
    digits += kHexDigits[static_cast<unsigned char>(c) >> 4];
    digits += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
  return digits;
}

std::optional<std::string> from_hexadecimal(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (size_t i = 0; i < digits.size(); i += 2) {
    const size_t high = kHexDigits.find(digits[i]), low = kHexDigits.find(digits[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::string time_now(Zone zone) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  if (zone == Zone::utc)
    gmtime_r(&now.tv_sec, &parts);
  else
    localtime_r(&now.tv_sec, &parts);
  char text[40], result[48];
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(result, sizeof(result), "%s.%03d", text, static_cast<int>(now.tv_nsec / 1000000));
  return result;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string quoted(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    append_escaped(out, byte, byte < 0x20 || byte >= 0x7f);
  }
  if (text.size() > kLongest) out += "...";
  return out + "'";
}

std::string in_one_line(std::string_view message) {
  constexpr size_t kLongest = 2000;
  std::string out;
  for (const char c : message.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    append_escaped(out, byte, byte < 0x20 || byte == 0x7f);
  }
  if (message.size() > kLongest) out += "...";
  return out;
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  for (size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    found.push_back(line.substr(at, end - at));
    at = end;
  }
  return found;
}

}  // namespace mx::launch::text
