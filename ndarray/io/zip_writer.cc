#include <zlib.h>

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/tensor_record.h"
#include "ndarray/io/zip.h"
#include "ndarray/io/zip_format.h"

namespace mx::io {
namespace {

using namespace detail;

constexpr uint16_t kVersion = 20, kVersionZip64 = 45;
constexpr uint16_t kMadeOnUnix = 3 << 8;
// No clock: equal content gives equal files. 1980-01-01, the first day that the format can name.
constexpr uint16_t kTime = 0, kDate = 0x21;
constexpr uint32_t kRegularFile = (0100000u | 0600u) << 16;
constexpr size_t kChunkBytes = 1 << 18;

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

uint32_t clamp32(uint64_t value, bool zip64) { return zip64 ? kMax32 : static_cast<uint32_t>(value); }

/// Compresses piece by piece and collects the output.
class Deflater {
 public:
  Deflater() {
    MX_CHECK(
        ::deflateInit2(&z_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK,
        OutOfMemory, "[npz] expected memory for compression, got none");
  }
  ~Deflater() { ::deflateEnd(&z_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void add(Bytes bytes) {
    while (!bytes.empty()) {
      const size_t give = std::min(bytes.size(), kMaxZlibBytes);
      z_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
      z_.avail_in = static_cast<uInt>(give);
      run(Z_NO_FLUSH);
      bytes = bytes.subspan(give);
    }
  }
  std::string finish() {
    z_.avail_in = 0;
    run(Z_FINISH);
    return std::move(made_);
  }

 private:
  void run(int flush) {
    const auto chunk = std::make_unique<char[]>(kChunkBytes);
    do {
      z_.next_out = reinterpret_cast<Bytef*>(chunk.get());
      z_.avail_out = kChunkBytes;
      ::deflate(&z_, flush);
      made_.append(chunk.get(), kChunkBytes - z_.avail_out);
    } while (z_.avail_out == 0);
  }

  z_stream z_{};
  std::string made_;
};

uint16_t flags_of(const std::string& name) {
  const bool ascii =
      std::all_of(name.begin(), name.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
  return ascii ? 0 : kFlagUtf8;
}

}  // namespace

ZipWriter::ZipWriter(ByteSink& sink, ZipMethod method, bool force_zip64)
    : sink_(sink), method_(method), force_zip64_(force_zip64) {}

void ZipWriter::put(const std::string& bytes) {
  sink_.write(bytes);
  offset_ += bytes.size();
}

void check_zip_name(const std::string& name) {
  MX_CHECK(is_utf8(name) && name.size() <= kMax16, InvalidArgument,
           "[npz] expected a name in UTF-8 of at most 65535 bytes, got ", in_quotes(name));
}

void ZipWriter::add(const std::string& name, std::span<const Bytes> parts) {
  check_zip_name(name);
  const auto place = std::lower_bound(names_seen_.begin(), names_seen_.end(), name);
  MX_CHECK(place == names_seen_.end() || *place != name, InvalidArgument,
           "[npz] expected every name once, got ", in_quotes(name), " twice");
  names_seen_.insert(place, name);

  ZipEntry entry;
  entry.name = name;
  entry.deflated = method_ == ZipMethod::deflated;
  entry.offset = offset_;
  std::string packed;
  uLong crc = ::crc32(0, nullptr, 0);
  for (const Bytes& part : parts) {
    if (!part.empty()) crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
    entry.bytes += part.size();
  }
  entry.crc = static_cast<uint32_t>(crc);
  if (entry.deflated) {
    Deflater deflater;
    for (const Bytes& part : parts) deflater.add(part);
    packed = deflater.finish();
  }
  entry.stored_bytes = entry.deflated ? packed.size() : entry.bytes;

  const bool zip64 = force_zip64_ || entry.bytes >= kMax32 || entry.stored_bytes >= kMax32;
  std::string header;
  append(header, kLocalMagic);
  append(header, zip64 ? kVersionZip64 : kVersion);
  append(header, flags_of(name));
  append(header, entry.deflated ? kMethodDeflated : kMethodStored);
  append(header, kTime);
  append(header, kDate);
  append(header, entry.crc);
  append(header, clamp32(entry.stored_bytes, zip64));
  append(header, clamp32(entry.bytes, zip64));
  append(header, static_cast<uint16_t>(name.size()));
  append(header, static_cast<uint16_t>(zip64 ? 20 : 0));
  header += name;
  if (zip64) {
    append(header, kExtraZip64);
    append(header, uint16_t{16});
    append(header, entry.bytes);
    append(header, entry.stored_bytes);
  }
  put(header);
  if (entry.deflated) {
    put(packed);
  } else {
    for (const Bytes& part : parts) {
      sink_.write(part);
      offset_ += part.size();
    }
  }
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const uint64_t begin = offset_;
  for (const ZipEntry& entry : entries_) {
    const bool zip64 =
        force_zip64_ || entry.bytes >= kMax32 || entry.stored_bytes >= kMax32 || entry.offset >= kMax32;
    std::string text;
    append(text, kCentralMagic);
    append(text, static_cast<uint16_t>(kMadeOnUnix | (zip64 ? kVersionZip64 : kVersion)));
    append(text, zip64 ? kVersionZip64 : kVersion);
    append(text, flags_of(entry.name));
    append(text, entry.deflated ? kMethodDeflated : kMethodStored);
    append(text, kTime);
    append(text, kDate);
    append(text, entry.crc);
    append(text, clamp32(entry.stored_bytes, zip64));
    append(text, clamp32(entry.bytes, zip64));
    append(text, static_cast<uint16_t>(entry.name.size()));
    append(text, static_cast<uint16_t>(zip64 ? 28 : 0));
    append(text, uint16_t{0});  // comment
    append(text, uint16_t{0});  // volume
    append(text, uint16_t{0});  // internal attributes
    append(text, kRegularFile);
    append(text, clamp32(entry.offset, zip64));
    text += entry.name;
    if (zip64) {
      append(text, kExtraZip64);
      append(text, uint16_t{24});
      append(text, entry.bytes);
      append(text, entry.stored_bytes);
      append(text, entry.offset);
    }
    put(text);
  }
  const uint64_t bytes = offset_ - begin, entries = entries_.size();
  const bool zip64 = force_zip64_ || entries >= kMax16 || begin >= kMax32 || bytes >= kMax32;
  std::string text;
  if (zip64) {
    append(text, kEnd64Magic);
    append(text, uint64_t{kEnd64Bytes - 12});
    append(text, static_cast<uint16_t>(kMadeOnUnix | kVersionZip64));
    append(text, kVersionZip64);
    append(text, uint32_t{0});
    append(text, uint32_t{0});
    append(text, entries);
    append(text, entries);
    append(text, bytes);
    append(text, begin);
    append(text, kEnd64LocatorMagic);
    append(text, uint32_t{0});
    append(text, offset_);
    append(text, uint32_t{1});
  }
  const auto entries16 = zip64 ? kMax16 : static_cast<uint16_t>(entries);
  append(text, kEndMagic);
  append(text, uint16_t{0});
  append(text, uint16_t{0});
  append(text, entries16);
  append(text, entries16);
  append(text, clamp32(bytes, zip64));
  append(text, clamp32(begin, zip64));
  append(text, uint16_t{0});
  put(text);
}

}  // namespace mx::io
