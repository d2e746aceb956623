// RecordIO: Apache MXNet's files of records, with an index file. Reads and writes files that MXNet's im2rec
// and MXRecordIO write and read.
//
//   data::RecordWriter writer("train.rec", "train.idx");
//   writer.write(data::pack_record({.label = {3}, .id = 7}, jpeg));
//   writer.commit();
//   data::SampleDataset set(data::image_records("train.rec", "train.idx"),
//                           {.transform = data::resize(64, 64)});
//
// Format (dmlc-core, recordio.h): each part of a record begins with the number 0xced7230a and a word with a
// flag in its upper 3 bits and the number of bytes in the lower 29, both little-endian; its end is filled to
// a multiple of 4 bytes. A record is cut into several parts where it contains that number at a multiple of 4;
// flags 1, 2 and 3 mark its first, middle and last parts, 0 a record of one part. The index file has a line
// "KEY<tab>OFFSET" per record.
//
// A damaged record is a FormatError with file and offset.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ndarray/io/atomic_file.h"
#include "ndarray/io/byte_sink.h"
#include "nn/data/sample_dataset.h"

namespace mx::data {

struct RecordFileOptions {
  BadSamples bad = BadSamples::fail;  ///< skip: damaged records are passed over when the file is scanned
  OnSkip on_skip = log_skipped;
};

/// The records of a file, read at any place. Thread-safe.
class RecordFile {
 public:
  /// Takes the offsets from the index file; without one, reads the heads of all records. Throws FileError and
  /// FormatError.
  explicit RecordFile(const std::string& path, const std::string& index_path = {},
                      const RecordFileOptions& options = {});
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  /// Returns record i. Blocks while it is read from the disk. Throws InvalidArgument unless 0 <= i < size().
  std::string read(int64_t i) const;
  uint64_t offset(int64_t i) const;
  /// The keys of the index file; 0, 1, .. without one.
  const std::vector<uint64_t>& keys() const { return keys_; }
  const std::string& path() const { return path_; }

 private:
  void read_index(const std::string& index_path, const RecordFileOptions& options);

  std::string path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  std::vector<uint64_t> offsets_, keys_;
};

/// Returns the record at `offset` of a file in memory, and sets `offset` to the place behind it. `path` is
/// for messages.
std::string parse_record(io::Bytes file, uint64_t& offset, const std::string& path);

/// Writes both files; each is replaced as a whole by commit().
class RecordWriter {
 public:
  /// Without an index path no index is written. Throws FileError.
  explicit RecordWriter(const std::string& path, const std::string& index_path = {});
  /// Appends a record with the next key, 0, 1, ... or with the given one. Throws InvalidArgument for a part
  /// of 2^29 bytes or more.
  void write(const std::string& record);
  void write(uint64_t key, const std::string& record);
  void commit();

 private:
  void write_part(uint32_t flag, std::string_view part);

  io::AtomicFile file_;
  std::unique_ptr<io::AtomicFile> index_;
  uint64_t next_key_ = 0, offset_ = 0;
};

/// The header that MXNet puts before the bytes of a record (IRHeader).
struct RecordHeader {
  std::vector<float> label{};  ///< one number, or several
  uint64_t id = 0, id2 = 0;
};
std::string pack_record(const RecordHeader& header, const std::string& content);
/// Returns the header and removes it from `record`. `where` begins messages.
RecordHeader unpack_record(std::string& record, const std::string& where);

/// Samples whose record `decode` turns into fields. Its errors should begin with `where`, which names the
/// file and the offset.
SourceHandle record_source(std::shared_ptr<const RecordFile> file,
                           std::function<Sample(std::string record, const std::string& where)> decode,
                           std::vector<std::string> names = {});
/// Records of images, as im2rec writes them: "image", u8 (height, width, channels), and "label", f32 () or
/// (k,).
SourceHandle image_records(const std::string& path, const std::string& index_path = {}, int64_t channels = 3,
                           const RecordFileOptions& options = {});

}  // namespace mx::data
