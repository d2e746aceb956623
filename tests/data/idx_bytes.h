// IDX files built by hand.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ndarray/io/byte_sink.h"

namespace mx::test {

/// Returns a header: the code of the type, and the sizes.
inline std::string idx_header(int type, const std::vector<uint32_t>& sizes) {
  std::string text{'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
  return text;
}

/// Returns the content compressed as `gzip` does.
inline std::string gzipped(const std::string& content) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, content.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  z.avail_in = static_cast<uInt>(content.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

inline io::Bytes as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace mx::test
