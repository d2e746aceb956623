// GzipReader: the content of a file in gzip's format (RFC 1952), piece by piece, from its bytes in memory.
//
// Several members one behind the other count as one, as gzip itself has it; anything else behind the last one
// is refused. Checksums and lengths are checked. One reader is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ndarray/io/byte_sink.h"

namespace mx::data {

/// Does the file begin as gzip's do?
bool is_gzip(io::Bytes file);

/// No compressed byte makes more bytes of content than this: what deflate can do at best.
inline constexpr uint64_t kMostInflation = 1032;

class GzipReader {
 public:
  /// `file` must outlive the reader; `where` begins every message, "[idx] 'a.gz'". Throws OutOfMemory.
  GzipReader(io::Bytes file, std::string where);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// The next bytes of the content: `out.size()`, or fewer where the content ends. Throws FormatError for
  /// damage and for compressed data that stop before their end, OutOfMemory.
  size_t read(std::span<std::byte> out);
  /// Throws FormatError unless the content has been read to its end and is the whole file.
  void finish();
  /// Bytes of content read so far.
  uint64_t position() const { return position_; }

 private:
  struct Inflate;
  bool next_member();

  std::string where_;
  io::Bytes rest_;  // what zlib has not been given
  std::unique_ptr<Inflate> inflate_;
  uint64_t position_ = 0;
  bool ended_ = false;
};

}  // namespace mx::data
