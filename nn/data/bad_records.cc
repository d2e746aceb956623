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
