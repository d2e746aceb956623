// Reading files of records: what happens with damaged ones, and the numbers that are read from text. Internal
// to the readers.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "ndarray/io/io_error.h"
#include "nn/data/sample_dataset.h"

namespace mx::data::detail {

/// Calls read(). A FormatError is thrown or, if bad records are skipped, given to `on_skip`; then returns
/// false.
template <class F>
bool read_record(BadSamples bad, const OnSkip& on_skip, const F& read) {
  try {
    read();
    return true;
  } catch (const FormatError& e) {
    if (bad == BadSamples::fail) throw;
    if (on_skip != nullptr) on_skip(e.what());
    return false;
  }
}

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

/// Reads a number that fills the whole text. A plus sign is allowed. Returns false for other text and for a
/// number that T cannot hold.
template <class T>
bool parse_number(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

/// Returns true if a decimal number that no floating-point type in use can hold is too large, and false if it
/// is too small. Precondition: `text` is such a number.
bool is_too_large(std::string_view text);

/// The same as parse_number() for a real number. One that is too large for T is infinite, and one that is too
/// small is 0.
template <class T>
bool parse_real(std::string_view text, T& value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ptr != text.data() + text.size()) return false;
  if (result.ec == std::errc::result_out_of_range) {
    value = is_too_large(text) ? std::numeric_limits<T>::infinity() : T(0);
    if (text[0] == '-') value = -value;
  }
  return result.ec == std::errc() || result.ec == std::errc::result_out_of_range;
}

/// Returns the text for a message: at most 40 characters, without control characters.
std::string excerpt(std::string_view text);

/// Returns "[reader] 'path'".
std::string place(const char* reader, const std::string& path);

/// Returns the content of a file, decompressed if it is in gzip format. Throws FileError, and FormatError if
/// it is damaged or has more than `most` bytes after decompression.
std::string read_text(const char* reader, const std::string& path, uint64_t most);

}  // namespace mx::data::detail
