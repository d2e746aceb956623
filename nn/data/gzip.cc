#include "nn/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::data {
namespace {

constexpr uint64_t kMaxZlibBytes = uint64_t{1} << 30;  // zlib counts bytes in 32 bits

}  // namespace

bool is_gzip(io::Bytes file) {
  return file.size() >= 2 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b};
}

struct GzipReader::Inflate {
  z_stream stream{};
  ~Inflate() { ::inflateEnd(&stream); }
};

GzipReader::GzipReader(io::Bytes file, std::string where)
    : where_(std::move(where)), rest_(file), inflate_(std::make_unique<Inflate>()) {
  // + 16: the data has a gzip header and trailer, which zlib verifies.
  MX_CHECK(::inflateInit2(&inflate_->stream, MAX_WBITS + 16) == Z_OK, OutOfMemory, where_,
           ": expected memory for decompression, got none");
}

GzipReader::~GzipReader() = default;

// Called at the end of a member. Returns true if another one follows, and prepares zlib for it.
bool GzipReader::next_member() {
  z_stream& z = inflate_->stream;
  const uint64_t left = rest_.size() + z.avail_in;
  if (left == 0) return false;
  // Bytes that zlib was given but has not consumed lie directly before rest_.
  const io::Bytes behind(rest_.data() - z.avail_in, left);
  MX_CHECK(is_gzip(behind), FormatError, where_, ": expected the end of the file after ", position_,
           " bytes of content, got ", left, " bytes more");
  ::inflateReset(&z);
  return true;
}

size_t GzipReader::read(std::span<std::byte> out) {
  z_stream& z = inflate_->stream;
  size_t made = 0;
  while (made < out.size() && !ended_) {
    if (z.avail_in == 0) {
      const uint64_t give = std::min<uint64_t>(rest_.size(), kMaxZlibBytes);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
      z.avail_in = static_cast<uInt>(give);
      rest_ = rest_.subspan(give);
    }
    const uint64_t want = std::min<uint64_t>(out.size() - made, kMaxZlibBytes);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    z.avail_out = static_cast<uInt>(want);
    const int status = ::inflate(&z, Z_NO_FLUSH);
    const uint64_t now = want - z.avail_out;
    made += now;
    position_ += now;
    MX_CHECK(status != Z_MEM_ERROR, OutOfMemory, where_, ": expected memory for decompression, got none");
    // Z_BUF_ERROR: no progress was possible, because the input has ended.
    MX_CHECK(status != Z_BUF_ERROR, FormatError, where_,
             ": expected the rest of the compressed data, got the end of the file after ", position_,
             " bytes of content");
    MX_CHECK(status == Z_OK || status == Z_STREAM_END, FormatError, where_,
             ": expected data compressed with gzip, got damaged data near byte ", position_,
             " of the content (", z.msg != nullptr ? z.msg : "a preset dictionary is required", ")");
    if (status == Z_STREAM_END) ended_ = !next_member();
  }
  return made;
}

void GzipReader::finish() {
  std::byte one;
  const uint64_t before = position_;
  MX_CHECK(read({&one, 1}) == 0, FormatError, where_, ": expected ", before, " bytes of content, got more");
}

}  // namespace mx::data
