#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "engine/base/check.h"
#include "ndarray/io/byte_reader.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/tensor_record.h"
#include "ndarray/io/zip.h"
#include "ndarray/io/zip_format.h"

namespace mx::io {
namespace {

using namespace detail;

// Deflate encodes at most 258 bytes in 2 bits. Together with the block's header bits, no stream compresses
// better than this ratio.
constexpr uint64_t kMaxDeflateRatio = 1032;

struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
  uint64_t end = 0;  // offset of the first byte behind the directory
};

uint32_t u32_at(Bytes file, uint64_t position) {
  uint32_t value;
  std::memcpy(&value, file.data() + position, sizeof(value));
  return value;
}

/// The end record is the last one whose comment reaches exactly to the end of the file.
uint64_t find_end(Bytes file, const std::string& where) {
  const uint64_t farthest = kEndBytes + kMaxCommentBytes;
  const uint64_t first = file.size() > farthest ? file.size() - farthest : 0;
  for (uint64_t position = file.size() >= kEndBytes ? file.size() - kEndBytes + 1 : 0; position > first;) {
    --position;
    if (u32_at(file, position) != kEndMagic) continue;
    uint16_t comment;
    std::memcpy(&comment, file.data() + position + kEndBytes - 2, sizeof(comment));
    if (position + kEndBytes + comment == file.size()) return position;
  }
  throw FormatError(
      where + ": expected a zip archive, which ends with a directory of its members, got no directory in " +
      std::to_string(file.size()) + " bytes");
}

void check_volumes(bool one, const std::string& where) {
  MX_CHECK(one, FormatError, where,
           ": expected a zip archive in one file, got a part of one that is split into several files");
}

void read_end64(Bytes file, uint64_t end, Directory& directory, const std::string& where) {
  ByteReader reader(file, where);
  reader.seek(end - kEnd64LocatorBytes + 4, "zip64 locator");
  const auto volume = reader.number<uint32_t>("zip64 locator");
  const auto offset = reader.number<uint64_t>("zip64 locator");
  const auto volumes = reader.number<uint32_t>("zip64 locator");
  check_volumes(volume == 0 && volumes <= 1, where);
  reader.seek(offset, "zip64 end record");
  MX_CHECK(reader.number<uint32_t>("zip64 end record") == kEnd64Magic, FormatError, where,
           ": expected a zip64 end record at offset ", offset, ", got something else");
  reader.take(8 + 2 + 2, "zip64 end record");  // its size and two versions
  const auto disk = reader.number<uint32_t>("zip64 end record");
  const auto disk_of_directory = reader.number<uint32_t>("zip64 end record");
  const auto entries_here = reader.number<uint64_t>("zip64 end record");
  directory.entries = reader.number<uint64_t>("zip64 end record");
  directory.bytes = reader.number<uint64_t>("zip64 end record");
  directory.offset = reader.number<uint64_t>("zip64 end record");
  directory.end = offset;
  check_volumes(disk == 0 && disk_of_directory == 0 && entries_here == directory.entries, where);
}

Directory find_directory(Bytes file, const std::string& where) {
  Directory directory;
  directory.end = find_end(file, where);
  ByteReader reader(file, where);
  reader.seek(directory.end + 4, "end record");
  const auto disk = reader.number<uint16_t>("end record");
  const auto disk_of_directory = reader.number<uint16_t>("end record");
  const auto entries_here = reader.number<uint16_t>("end record");
  directory.entries = reader.number<uint16_t>("end record");
  directory.bytes = reader.number<uint32_t>("end record");
  directory.offset = reader.number<uint32_t>("end record");
  const uint64_t end = directory.end;
  if (end >= kEnd64LocatorBytes && u32_at(file, end - kEnd64LocatorBytes) == kEnd64LocatorMagic)
    read_end64(file, end, directory, where);
  else
    check_volumes(disk == 0 && disk_of_directory == 0 && entries_here == directory.entries, where);
  MX_CHECK(directory.bytes <= directory.end && directory.offset == directory.end - directory.bytes,
           FormatError, where, ": expected a directory that ends at offset ", directory.end, ", got ",
           directory.bytes, " bytes at offset ", directory.offset);
  MX_CHECK(directory.entries <= directory.bytes / kCentralBytes, FormatError, where,
           ": expected a directory of at most ", directory.bytes / kCentralBytes, " members, got ",
           directory.entries);
  return directory;
}

/// Replaces the values that do not fit the 32-bit fields by those of the zip64 field, which are in this
/// order.
void apply_zip64(Bytes extra, ZipEntry& entry, uint64_t& header, const std::string& where) {
  const bool bytes = entry.bytes == kMax32, stored = entry.stored_bytes == kMax32, offset = header == kMax32;
  if (!bytes && !stored && !offset) return;
  ByteReader reader(extra, where);
  while (reader.remaining() >= 4) {
    const auto id = reader.number<uint16_t>("extra field");
    const auto length = reader.number<uint16_t>("extra field");
    const Bytes field = reader.take(length, "extra field");
    if (id != kExtraZip64) continue;
    ByteReader numbers(field, where);
    if (bytes) entry.bytes = numbers.number<uint64_t>("zip64 field");
    if (stored) entry.stored_bytes = numbers.number<uint64_t>("zip64 field");
    if (offset) header = numbers.number<uint64_t>("zip64 field");
    return;
  }
  // 0xffffffff is a size as well, of 4 GiB less one.
}

void check_entry(const ZipEntry& entry, uint16_t flags, uint16_t method, const std::string& where) {
  MX_CHECK((flags & (kFlagEncrypted | kFlagStrongEncryption | kFlagMasked)) == 0, FormatError, where,
           ": expected a member without encryption, got an encrypted one");
  MX_CHECK(method == kMethodStored || method == kMethodDeflated, FormatError, where,
           ": expected the compression method 0 (stored) or 8 (deflate), got method ", method);
  if (!entry.deflated) {
    MX_CHECK(entry.bytes == entry.stored_bytes, FormatError, where, ": expected a stored member of ",
             entry.bytes, " bytes, got ", entry.stored_bytes);
  } else {
    MX_CHECK(entry.bytes / kMaxDeflateRatio <= entry.stored_bytes, FormatError, where,
             ": expected content of at most ", kMaxDeflateRatio, " times the ", entry.stored_bytes,
             " compressed bytes, got ", entry.bytes);
  }
}

struct Extent {
  uint64_t begin, end;
  size_t entry;
};

/// Finds where the content begins: the local header repeats the name and has an extra field of its own.
Extent locate(Bytes file, uint64_t header, uint64_t directory, ZipEntry& entry, const std::string& where) {
  MX_CHECK(header <= directory && kLocalBytes <= directory - header, FormatError, where,
           ": expected a member before the directory at offset ", directory, ", got one at offset ", header);
  ByteReader reader(file.first(directory), where);
  reader.seek(header, "header");
  MX_CHECK(reader.number<uint32_t>("header") == kLocalMagic, FormatError, where,
           ": expected the header of a member at offset ", header, ", got something else");
  reader.take(2 + 2 + 2 + 4 + 4 + 4 + 4, "header");
  const auto name_bytes = reader.number<uint16_t>("header");
  const auto extra_bytes = reader.number<uint16_t>("header");
  const std::string name = reader.text(name_bytes, "name");
  MX_CHECK(name == entry.name, FormatError, where,
           ": expected the same name in the member's header as in the directory, got ", in_quotes(name));
  reader.take(extra_bytes, "extra field");
  entry.offset = reader.position();
  reader.take(entry.stored_bytes, "content");
  return {header, reader.position(), 0};
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(Bytes file, const std::string& path, const ZipLimits& limits) {
  const std::string where = "[npz] " + in_quotes(path);
  const Directory directory = find_directory(file, where);
  MX_CHECK(directory.entries <= limits.max_entries, FormatError, where, ": expected at most ",
           limits.max_entries, " members (ZipLimits::max_entries), got ", directory.entries);
  ByteReader reader(file.subspan(directory.offset, directory.bytes), where);
  std::vector<ZipEntry> entries;
  std::vector<Extent> extents;
  std::unordered_set<std::string> names;
  uint64_t inflated_bytes = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    MX_CHECK(reader.number<uint32_t>("directory") == kCentralMagic, FormatError, where, ": expected member ",
             i, " of ", directory.entries, " in the directory, got something else");
    reader.take(2 + 2, "directory");  // versions
    const auto flags = reader.number<uint16_t>("directory");
    const auto method = reader.number<uint16_t>("directory");
    reader.take(2 + 2, "directory");  // time and date
    ZipEntry entry;
    entry.deflated = method == kMethodDeflated;
    entry.crc = reader.number<uint32_t>("directory");
    entry.stored_bytes = reader.number<uint32_t>("directory");
    entry.bytes = reader.number<uint32_t>("directory");
    const auto name_bytes = reader.number<uint16_t>("directory");
    const auto extra_bytes = reader.number<uint16_t>("directory");
    const auto comment_bytes = reader.number<uint16_t>("directory");
    const auto volume = reader.number<uint16_t>("directory");
    reader.take(2 + 4, "directory");  // attributes
    uint64_t header = reader.number<uint32_t>("directory");
    entry.name = reader.text(name_bytes, "name");
    const std::string place = where + ": member " + in_quotes(entry.name);
    check_volumes(volume == 0, place);
    MX_CHECK(is_utf8(entry.name), FormatError, place, ": expected a name in UTF-8, got another encoding");
    MX_CHECK(names.insert(entry.name).second, FormatError, where, ": expected every member once, got ",
             in_quotes(entry.name), " twice");
    apply_zip64(reader.take(extra_bytes, "extra field"), entry, header, place);
    reader.take(comment_bytes, "comment");
    check_entry(entry, flags, method, place);
    if (entry.deflated) {
      // Neither term is beyond 1032 times a file in memory... unless the file lies: the sum may not wrap.
      MX_CHECK(entry.bytes <= limits.max_inflated_bytes &&
                   inflated_bytes <= limits.max_inflated_bytes - entry.bytes,
               FormatError, place, ": expected at most ", limits.max_inflated_bytes,
               " bytes of decompressed content in total (ZipLimits::max_inflated_bytes), got more");
      inflated_bytes += entry.bytes;
    }
    Extent extent = locate(file, header, directory.offset, entry, place);
    extent.entry = entries.size();
    extents.push_back(extent);
    entries.push_back(std::move(entry));
  }
  MX_CHECK(reader.remaining() == 0, FormatError, where, ": expected a directory of ", directory.entries,
           " members, got ", reader.remaining(), " bytes more");
  // Members that share bytes are how a small file holds any amount of data.
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i)
    MX_CHECK(extents[i - 1].end <= extents[i].begin, FormatError, where,
             ": expected members that do not overlap, got ", in_quotes(entries[extents[i - 1].entry].name),
             " and ", in_quotes(entries[extents[i].entry].name));
  return entries;
}

struct ZipStream::Inflate {
  z_stream stream{};
  Bytes rest;  // input that zlib has not received yet
  bool ended = false;
  ~Inflate() { ::inflateEnd(&stream); }
};

ZipStream::ZipStream(Bytes file, const ZipEntry& entry, const std::string& path)
    : entry_(entry), where_("[npz] " + in_quotes(path) + ": member " + in_quotes(entry.name)) {
  MX_CHECK(entry.offset <= file.size() && entry.stored_bytes <= file.size() - entry.offset, InvalidArgument,
           where_, ": expected a member of this file, got one beyond its end");
  input_ = file.subspan(entry.offset, entry.stored_bytes);
  crc_ = static_cast<uint32_t>(::crc32(0, nullptr, 0));
  if (!entry.deflated) return;
  auto state = std::make_unique<Inflate>();
  state->rest = input_;
  // Negative: a bare stream, without zlib's own header.
  MX_CHECK(::inflateInit2(&state->stream, -MAX_WBITS) == Z_OK, OutOfMemory, where_,
           ": expected memory for decompression, got none");
  inflate_ = std::move(state);
}

ZipStream::~ZipStream() = default;

size_t ZipStream::inflate_some(std::span<std::byte> out) {
  z_stream& z = inflate_->stream;
  size_t made = 0;
  while (made < out.size() && !inflate_->ended) {
    if (z.avail_in == 0) {
      const size_t give = std::min<uint64_t>(inflate_->rest.size(), kMaxZlibBytes);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(inflate_->rest.data()));
      z.avail_in = static_cast<uInt>(give);
      inflate_->rest = inflate_->rest.subspan(give);
    }
    const size_t want = std::min<uint64_t>(out.size() - made, kMaxZlibBytes);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    z.avail_out = static_cast<uInt>(want);
    const int status = ::inflate(&z, Z_NO_FLUSH);
    made += want - z.avail_out;
    inflate_->ended = status == Z_STREAM_END;
    MX_CHECK(status != Z_MEM_ERROR, OutOfMemory, where_, ": expected memory for decompression, got none");
    // Z_BUF_ERROR: no progress was possible, the stream stops short of its end.
    MX_CHECK(status == Z_OK || status == Z_STREAM_END, FormatError, where_,
             ": expected data compressed with deflate, got damaged data near byte ", done_ + made, " of ",
             entry_.bytes, " (", z.msg != nullptr ? z.msg : "the data end too early", ")");
  }
  return made;
}

size_t ZipStream::read(std::span<std::byte> out) {
  const size_t want = std::min<uint64_t>(out.size(), remaining());
  if (want == 0) return 0;
  out = out.first(want);
  if (inflate_) {
    const size_t made = inflate_some(out);
    MX_CHECK(made == want, FormatError, where_, ": expected ", entry_.bytes, " bytes of content, got ",
             done_ + made);
  } else {
    std::memcpy(out.data(), input_.data() + done_, want);
  }
  crc_ = static_cast<uint32_t>(::crc32_z(crc_, reinterpret_cast<const Bytef*>(out.data()), want));
  done_ += want;
  return want;
}

void ZipStream::finish() {
  MX_CHECK(remaining() == 0, InvalidState, where_, ": expected all of the content to be read, got ",
           remaining(), " bytes left");
  if (inflate_) {
    std::byte one;
    const size_t more = inflate_some({&one, 1});
    MX_CHECK(more == 0 && inflate_->ended, FormatError, where_, ": expected ", entry_.bytes,
             " bytes of content, got more");
    const uint64_t unused = inflate_->rest.size() + inflate_->stream.avail_in;
    MX_CHECK(unused == 0, FormatError, where_, ": expected ", entry_.stored_bytes - unused,
             " compressed bytes, got ", entry_.stored_bytes);
  }
  MX_CHECK(crc_ == entry_.crc, FormatError, where_, ": expected the checksum (CRC-32) ", entry_.crc, ", got ",
           crc_, "; the file is damaged");
}

}  // namespace mx::io
