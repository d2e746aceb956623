// ByteReader: a position in a span of bytes that never leaves it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "engine/base/check.h"
#include "ndarray/io/byte_sink.h"
#include "ndarray/io/io_error.h"

namespace mx::io {

class ByteReader {
 public:
  /// Every message begins with `where`, for example "[npy] 'a.npy'". Both arguments must outlive the reader.
  ByteReader(Bytes bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  /// Returns the next `count` bytes and moves past them. Throws FormatError naming `what` if there are fewer.
  Bytes take(uint64_t count, const char* what) {
    MX_CHECK(count <= remaining(), FormatError, where_, ": expected ", count, " bytes of ", what,
             " at offset ", position_, ", got the end of the file after ", remaining());
    const Bytes part = bytes_.subspan(position_, count);
    position_ += count;
    return part;
  }

  /// Reads a little-endian number.
  template <class T>
  T number(const char* what) {
    static_assert(std::is_integral_v<T>);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string text(uint64_t count, const char* what) {
    const Bytes part = take(count, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  /// Seeks to an offset within the bytes.
  void seek(uint64_t position, const char* what) {
    MX_CHECK(position <= bytes_.size(), FormatError, where_, ": expected ", what, " at offset ", position,
             ", got a file of ", bytes_.size(), " bytes");
    position_ = position;
  }

 private:
  Bytes bytes_;
  const std::string& where_;
  uint64_t position_ = 0;
};

}  // namespace mx::io
