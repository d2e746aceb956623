#include "nn/data/bad_records.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "ndarray/io/tensor_record.h"
#include "nn/data/gzip.h"

namespace mx::data::detail {

std::string excerpt(std::string_view text) {
  std::string made;
  for (const char c : text.substr(0, 40)) made += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text.size() > 40 ? made + "..." : made;
}

bool is_too_large(std::string_view text) {
  const size_t mark = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, mark), power = text.substr(std::min(mark + 1, text.size()));
  const bool shrinks = power.starts_with('-');
  int64_t exponent = 0;
  for (const char c : power)
    if (c >= '0' && c <= '9') exponent = std::min<int64_t>(10 * exponent + (c - '0'), int64_t{1} << 40);
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<int64_t>(std::min(digits.find_first_of("123456789"), digits.size()));
  return point - first + (shrinks ? -exponent : exponent) > 0;
}

std::string place(const char* reader, const std::string& path) {
  return mx::detail::concat("[", reader, "] ", io::in_quotes(path));
}

std::string read_text(const char* reader, const std::string& path, uint64_t most) {
  const io::MappedFile file(path);
  const std::string where = place(reader, path);
  if (!is_gzip(file.bytes())) return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
  GzipReader content(file.bytes(), where);
  std::string text;
  constexpr size_t kPiece = size_t{1} << 20;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const size_t got = content.read(std::as_writable_bytes(std::span(text)).subspan(before));
    text.resize(before + got);
    MX_CHECK(text.size() <= most, FormatError, where, ": expected at most ", most,
             " bytes after decompression, got more");
    if (got < kPiece) return text;
  }
}

}  // namespace mx::data::detail
