// Zip archives: what .npz files need of them. Stored and deflated members, zip64, members of any size; read
// from memory, written in order. Compression and checksums are zlib's.
// Source: PKWARE APPNOTE 6.3.10, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
//
// Only the central directory is believed, and only after it has been checked: members must lie within the
// file and must not overlap each other or the directory; a member that inflates to more than it declares, to
// less, or to another checksum, is refused. Encryption, several volumes and other methods are refused by
// name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ndarray/io/byte_sink.h"

namespace mx::io {

struct ZipEntry {
  std::string name;  ///< UTF-8
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t stored_bytes = 0;  ///< within the archive
  uint64_t bytes = 0;         ///< of the content
  uint64_t offset = 0;        ///< of the stored bytes, from the begin of the file
};

struct ZipLimits {
  uint64_t max_entries = 1'000'000;
  /// The most that all deflated members together may declare as their content: the guard against small files
  /// that inflate without end. Stored members are limited by the file itself.
  uint64_t max_inflated_bytes = uint64_t{64} << 30;
};

/// The members of an archive in the order of its directory; names are unique. `path` is for messages. Throws
/// FormatError.
std::vector<ZipEntry> read_zip_directory(Bytes file, const std::string& path, const ZipLimits& limits = {});

/// Reads the content of one member from its begin to its end. Not thread-safe; several streams over the same
/// file are independent.
class ZipStream {
 public:
  /// `file` must outlive the stream.
  ZipStream(Bytes file, const ZipEntry& entry, const std::string& path);
  ~ZipStream();
  ZipStream(const ZipStream&) = delete;
  ZipStream& operator=(const ZipStream&) = delete;

  /// Up to out.size() bytes of the content, fewer only at its end. Throws FormatError.
  size_t read(std::span<std::byte> out);
  /// Must come after the last read: nothing may be left, and the checksum must be right. Throws FormatError.
  void finish();
  uint64_t remaining() const { return entry_.bytes - done_; }

 private:
  struct Inflate;
  size_t inflate_some(std::span<std::byte> out);

  Bytes input_;
  ZipEntry entry_;
  std::string where_;
  std::unique_ptr<Inflate> inflate_;  // null when stored
  uint64_t done_ = 0;
  uint32_t crc_ = 0;
};

enum class ZipMethod { stored, deflated };

/// Throws InvalidArgument for a name that no member can have: not UTF-8, or too long.
void check_zip_name(const std::string& name);

/// Writes an archive in order; nothing is patched afterwards. Sizes go into the headers in front of each
/// member, so that readers that do not look at the directory work as well; a deflated member is therefore
/// compressed in memory first. zip64 is used where a size or an offset does not fit into 32 bits.
class ZipWriter {
 public:
  /// `force_zip64` writes the long form always (tests, and readers' tests).
  explicit ZipWriter(ByteSink& sink, ZipMethod method = ZipMethod::stored, bool force_zip64 = false);

  /// One member, of the parts put together. Throws InvalidArgument for a name that is not UTF-8, is longer
  /// than 65535 bytes or comes twice, and what the sink throws.
  void add(const std::string& name, std::span<const Bytes> parts);
  /// The directory. Must come last, once.
  void finish();

 private:
  void put(const std::string& bytes);

  ByteSink& sink_;
  ZipMethod method_;
  bool force_zip64_;
  uint64_t offset_ = 0;
  std::vector<ZipEntry> entries_;        // offset: of the header
  std::vector<std::string> names_seen_;  // sorted
};

}  // namespace mx::io
