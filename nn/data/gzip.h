// GzipReader: decompresses a file in gzip format (RFC 1952) piece by piece, from its bytes in memory.
//
// As with gzip itself, the content of a file with several members is the concatenation of theirs. Other data
// after the last member is an error. Checksums and lengths are verified. Thread-safety: one thread at a time
// may use a reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ndarray/io/byte_sink.h"

namespace mx::data {

/// Returns true if the file begins with the magic number of gzip.
bool is_gzip(io::Bytes file);

/// The largest number of content bytes that one byte of deflate can decompress to.
inline constexpr uint64_t kMostInflation = 1032;

class GzipReader {
 public:
  /// `file` must outlive the reader. Every message begins with `where`, such as "[idx] 'a.gz'". Throws
  /// OutOfMemory.
  GzipReader(io::Bytes file, std::string where);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Reads the next bytes of the content and returns their number: `out.size()`, or less at the end of the
  /// content. Throws FormatError for corrupt or truncated data, and OutOfMemory.
  size_t read(std::span<std::byte> out);
  /// Throws FormatError unless the content has been read to its end, and nothing else follows it in the file.
  void finish();
  /// Returns the number of bytes of content read so far.
  uint64_t position() const { return position_; }

 private:
  struct Inflate;
  bool next_member();

  std::string where_;
  io::Bytes rest_;  // the bytes not yet passed to zlib
  std::unique_ptr<Inflate> inflate_;
  uint64_t position_ = 0;
  bool ended_ = false;
};

}  // namespace mx::data
