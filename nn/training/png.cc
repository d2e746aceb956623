#include "nn/training/png.h"

#include <zlib.h>

#include "engine/base/check.h"

namespace mx::training::detail {
namespace {

void put_u32(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift & 0xFF);
}

void put_chunk(std::string& to, const std::string& type, const std::string& content) {
  put_u32(to, static_cast<uint32_t>(content.size()));
  const std::string body = type + content;
  to += body;
  put_u32(to, static_cast<uint32_t>(
                  crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()))));
}

}  // namespace

std::string encode_png(const std::vector<uint8_t>& pixels, int64_t height, int64_t width, int64_t channels) {
  const auto row = static_cast<size_t>(width * channels);
  std::string raw;
  raw.reserve(pixels.size() + static_cast<size_t>(height));
  for (int64_t y = 0; y < height; ++y) {
    raw += '\0';  // the filter "none"
    raw.append(reinterpret_cast<const char*>(pixels.data()) + static_cast<size_t>(y) * row, row);
  }
  uLongf size = compressBound(static_cast<uLong>(raw.size()));
  std::string packed(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(raw.data()), static_cast<uLong>(raw.size()), 6);
  MX_CHECK(status == Z_OK, Error, "[png] zlib could not compress ", raw.size(), " bytes: error ", status);
  packed.resize(size);

  std::string file = "\x89PNG\r\n\x1a\n", header;
  put_u32(header, static_cast<uint32_t>(width));
  put_u32(header, static_cast<uint32_t>(height));
  header += '\x08';                                                        // bits per channel
  header += static_cast<char>(channels == 1 ? 0 : channels == 3 ? 2 : 6);  // grey, RGB, RGBA
  header += std::string(3, '\0');  // deflate, the only filter method, not interlaced
  put_chunk(file, "IHDR", header);
  put_chunk(file, "IDAT", packed);
  put_chunk(file, "IEND", "");
  return file;
}

}  // namespace mx::training::detail
