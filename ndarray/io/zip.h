// Zip archives, as far as .npz files need them: stored and deflated members, zip64, members of any size.
// Archives are read from memory and written in order. zlib compresses and computes the checksums. Source:
// PKWARE APPNOTE 6.3.10, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
//
// The reader trusts only the central directory, and only after checking it: members must lie within the file
// and must not overlap each other or the directory. A member is refused if it inflates to more or fewer bytes
// than it declares, or to another checksum. Encryption, several volumes and other methods are refused by
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
  /// Upper limit of the content that all deflated members may declare together. Protects against small files
  /// that inflate to huge sizes. The size of stored members is limited by the file itself.
  uint64_t max_inflated_bytes = uint64_t{64} << 30;
};

/// Returns the members of an archive in the order of its directory; names are unique. Messages name `path`.
/// Throws FormatError.
std::vector<ZipEntry> read_zip_directory(Bytes file, const std::string& path, const ZipLimits& limits = {});

/// Reads the content of one member from start to end. Not thread-safe; several streams over the same file are
/// independent.
class ZipStream {
 public:
  /// `file` must outlive the stream.
  ZipStream(Bytes file, const ZipEntry& entry, const std::string& path);
  ~ZipStream();
  ZipStream(const ZipStream&) = delete;
  ZipStream& operator=(const ZipStream&) = delete;

  /// Reads up to out.size() bytes of the content; fewer only at the end. Throws FormatError.
  size_t read(std::span<std::byte> out);
  /// Call after the last read. Throws FormatError if content is left or the checksum is wrong.
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

/// Throws InvalidArgument for a name that no member can have: not UTF-8, too long, or with a byte of value 0.
void check_zip_name(const std::string& name);

/// Writes an archive in order; nothing is patched afterwards. The header in front of each member has its
/// sizes, so that readers that ignore the directory work as well. Therefore a deflated member is compressed
/// in memory first. zip64 is used if a size or an offset does not fit into 32 bits.
class ZipWriter {
 public:
  /// With `force_zip64` the long form is always written; for tests.
  explicit ZipWriter(ByteSink& sink, ZipMethod method = ZipMethod::stored, bool force_zip64 = false);

  /// Writes one member; its content is the concatenation of the parts. Throws InvalidArgument for a name that
  /// is not UTF-8, is longer than 65535 bytes or is a duplicate, and any exception of the sink.
  void add(const std::string& name, std::span<const Bytes> parts);
  /// Writes the directory. Call it once, after the last member.
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
