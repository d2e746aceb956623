#include "ndarray/io/tensor_record.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::io {

uint64_t checked_bytes(const Shape& shape, DType dtype, const std::string& where) {
  bool overflow = false, empty = false;
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  for (int64_t dim : shape) {
    MX_CHECK(dim >= 0, FormatError, where, ": expected sizes that are not negative, got shape ", shape);
    empty = empty || dim == 0;
    // As in checked_numel, large sizes are rejected even if another size is 0.
    overflow = overflow || __builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes);
  }
  MX_CHECK(!overflow, FormatError, where, ": expected fewer than 2^63 bytes, got shape ", shape, " of ",
           dtype);
  return empty ? 0 : static_cast<uint64_t>(bytes);
}

void check_data(const TensorData& tensor, const char* op) {
  const int64_t elements = checked_numel(tensor.shape, size_of(tensor.dtype), op);
  const uint64_t expected = static_cast<uint64_t>(elements) * size_of(tensor.dtype);
  MX_CHECK(tensor.data.size() == expected, InvalidArgument, "[", op, "] expected ", expected, " bytes for ",
           in_quotes(tensor.name), " of ", tensor.dtype, " and shape ", tensor.shape, ", got ",
           tensor.data.size());
}

void check_bools(Bytes data, const std::string& where) {
  const auto bad = std::find_if(data.begin(), data.end(), [](std::byte b) { return b > std::byte{1}; });
  MX_CHECK(bad == data.end(), FormatError, where, ": expected booleans of 0 or 1, got ",
           std::to_integer<int>(*bad), " at element ", bad - data.begin());
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() - i < length) return false;
    uint32_t code = first & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = (code << 6) | (next & 0x3fu);
    }
    const uint32_t smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
    if (code < smallest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
    i += length;
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kMaxBytes = 200;
  constexpr char kDigits[] = "0123456789abcdef";
  const bool valid = is_utf8(text);
  std::string out = "'";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // Cuts between characters, so that the message stays valid UTF-8.
    if (out.size() > kMaxBytes && (!valid || (c & 0xc0) != 0x80)) {
      out += "...";
      break;
    }
    if (c < 0x20 || c == 0x7f || (c >= 0x80 && !valid)) {
      out += "\\x";
      out += kDigits[c >> 4];
      out += kDigits[c & 15];
    } else {
      out += text[i];
    }
  }
  return out + "'";
}

}  // namespace mx::io
