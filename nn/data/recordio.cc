#include "nn/data/recordio.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "nn/data/bad_records.h"
#include "nn/data/image_file.h"

namespace mx::data {
namespace {

constexpr uint32_t kRecordMagic = 0xced7230a, kMostPartBytes = (1u << 29) - 1;
constexpr uint64_t kPartHead = 8;

enum class PartFlag : uint32_t { whole = 0, first = 1, middle = 2, last = 3 };

uint32_t word_at(const std::byte* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

uint64_t padded_size(uint64_t bytes) { return (bytes + 3) / 4 * 4; }

struct RecordPart {
  PartFlag flag = PartFlag::whole;
  uint64_t begin = 0, bytes = 0;
  uint64_t end() const { return begin + padded_size(bytes); }
};

/// Reads the parts of records. ReadBytes is called as read(offset, span) for bytes that the file has.
template <class ReadBytes>
class RecordParser {
 public:
  RecordParser(uint64_t file_bytes, const std::string& path, const ReadBytes& read)
      : file_bytes_(file_bytes), where_(detail::place("recordio", path)), read_(read) {}

  RecordPart part(uint64_t offset) const {
    MX_CHECK(offset <= file_bytes_ && file_bytes_ - offset >= kPartHead, FormatError, where_,
             ": expected the head of a record, 8 bytes, at offset ", offset,
             ", got the end of the file after ", offset <= file_bytes_ ? file_bytes_ - offset : 0);
    std::byte head[kPartHead];
    read_(offset, std::span<std::byte>(head));
    MX_CHECK(word_at(head) == kRecordMagic, FormatError, where_,
             ": expected the number 3470205706 at offset ", offset, ", where a record begins, got ",
             word_at(head));
    const uint32_t word = word_at(head + 4);
    MX_CHECK(word >> 29 <= 3, FormatError, where_, ": expected a flag from 0 to 3 at offset ", offset + 4,
             ", got ", word >> 29);
    const RecordPart part{static_cast<PartFlag>(word >> 29), offset + kPartHead, word & kMostPartBytes};
    const uint64_t left = file_bytes_ - part.begin;
    MX_CHECK(padded_size(part.bytes) <= left, FormatError, where_, ": expected ", padded_size(part.bytes),
             " bytes of the record at offset ", offset, ", got the end of the file after ", left);
    return part;
  }

  /// Returns the parts of the record at `offset`.
  std::vector<RecordPart> parts(uint64_t offset) const {
    std::vector<RecordPart> all = {part(offset)};
    const PartFlag first = all[0].flag;
    MX_CHECK(first == PartFlag::whole || first == PartFlag::first, FormatError, where_,
             ": expected the beginning of a record at offset ", offset, ", got a later part of one");
    while (all.back().flag != PartFlag::whole && all.back().flag != PartFlag::last) {
      const uint64_t next = all.back().end();
      all.push_back(part(next));
      MX_CHECK(all.back().flag == PartFlag::middle || all.back().flag == PartFlag::last, FormatError, where_,
               ": expected another part of the record of offset ", offset, " at offset ", next,
               ", got the beginning of a record");
    }
    return all;
  }

  std::string join(const std::vector<RecordPart>& parts) const {
    std::string record;
    for (const RecordPart& part : parts) {
      if (!record.empty() || &part != &parts.front())
        record.append(reinterpret_cast<const char*>(&kRecordMagic), sizeof(kRecordMagic));
      const size_t before = record.size();
      record.resize(before + part.bytes);
      if (part.bytes > 0) read_(part.begin, std::as_writable_bytes(std::span(record)).subspan(before));
    }
    return record;
  }

 private:
  uint64_t file_bytes_;
  std::string where_;
  const ReadBytes& read_;
};

auto reader_of(io::Bytes file) {
  return [file](uint64_t offset, std::span<std::byte> out) {
    std::memcpy(out.data(), file.data() + offset, out.size());
  };
}

auto reader_of(int fd, const std::string& path) {
  return [fd, &path](uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw FileError("read", path, errno, "");
      MX_CHECK(got > 0, FormatError, detail::place("recordio", path), ": expected ", out.size(),
               " bytes at offset ", offset, ", got the end of the file, which has become shorter");
      out = out.subspan(static_cast<size_t>(got));
      offset += static_cast<uint64_t>(got);
    }
  };
}

// Returns the offset of the next word that may begin a record, or the end of the file.
uint64_t next_record(io::Bytes file, uint64_t offset) {
  for (offset = padded_size(offset + 1); offset + kPartHead <= file.size(); offset += 4)
    if (word_at(file.data() + offset) == kRecordMagic &&
        (word_at(file.data() + offset + 4) >> 29 & ~uint32_t{1}) == 0)
      return offset;
  return file.size();
}

}  // namespace

RecordFile::RecordFile(const std::string& path, const std::string& index_path,
                       const RecordFileOptions& options)
    : path_(path) {
  if (!index_path.empty()) {
    bytes_ = io::MappedFile(path).size();
    read_index(index_path, options);
  } else {
    const io::MappedFile file(path);
    bytes_ = file.size();
    const auto read = reader_of(file.bytes());
    const RecordParser parser(bytes_, path_, read);
    for (uint64_t offset = 0; offset < bytes_;)
      if (!detail::read_record(options.bad, options.on_skip, [&] {
            const uint64_t end = parser.parts(offset).back().end();
            offsets_.push_back(offset);
            offset = end;
          }))
        offset = next_record(file.bytes(), offset);
    for (uint64_t i = 0; i < offsets_.size(); ++i) keys_.push_back(i);
  }
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) throw FileError("open", path, errno, "");
}

RecordFile::~RecordFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RecordFile::read_index(const std::string& index_path, const RecordFileOptions& options) {
  const io::MappedFile file(index_path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = detail::trimmed(text.substr(at, end - at));
    ++number;
    if (!line.empty())
      detail::read_record(options.bad, options.on_skip, [&] {
        const size_t tab = std::min(line.find('\t'), line.size());
        uint64_t key = 0, offset = 0;
        MX_CHECK(tab < line.size() && detail::parse_number(line.substr(0, tab), key) &&
                     detail::parse_number(line.substr(tab + 1), offset) && offset < bytes_,
                 FormatError, detail::place("recordio", index_path), ", line ", number, " at offset ", at,
                 ": expected KEY<tab>OFFSET with an offset below ", bytes_, ", got '", detail::excerpt(line),
                 "'");
        keys_.push_back(key);
        offsets_.push_back(offset);
      });
    at = end + 1;
  }
}

uint64_t RecordFile::offset(int64_t i) const {
  MX_CHECK(i >= 0 && i < size(), InvalidArgument, "[recordio] expected records from 0 to ", size() - 1,
           ", got ", i);
  return offsets_[static_cast<size_t>(i)];
}

std::string RecordFile::read(int64_t i) const {
  const uint64_t at = offset(i);
  const auto read_bytes = reader_of(fd_, path_);
  const RecordParser parser(bytes_, path_, read_bytes);
  return parser.join(parser.parts(at));
}

std::string parse_record(io::Bytes file, uint64_t& offset, const std::string& path) {
  const auto read = reader_of(file);
  const RecordParser parser(file.size(), path, read);
  const std::vector<RecordPart> parts = parser.parts(offset);
  offset = parts.back().end();
  return parser.join(parts);
}

RecordWriter::RecordWriter(const std::string& path, const std::string& index_path) : file_(path) {
  if (!index_path.empty()) index_ = std::make_unique<io::AtomicFile>(index_path);
}

void RecordWriter::write(const std::string& record) { write(next_key_, record); }

void RecordWriter::write(uint64_t key, const std::string& record) {
  // The places at multiples of 4 where the record has the number with which records begin.
  std::vector<size_t> cuts;
  for (size_t at = 0; at + 4 <= record.size(); at += 4)
    if (word_at(reinterpret_cast<const std::byte*>(record.data()) + at) == kRecordMagic) cuts.push_back(at);
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t cut : cuts) {
    parts.push_back(std::string_view(record).substr(begin, cut - begin));
    begin = cut + 4;
  }
  parts.push_back(std::string_view(record).substr(begin));
  for (const std::string_view part : parts)
    MX_CHECK(part.size() <= kMostPartBytes, InvalidArgument, "[recordio] expected a record of at most ",
             kMostPartBytes, " bytes, got ", part.size());
  if (index_ != nullptr) index_->write(std::to_string(key) + '\t' + std::to_string(offset_) + '\n');
  for (size_t i = 0; i < parts.size(); ++i) {
    const PartFlag flag = parts.size() == 1      ? PartFlag::whole
                          : i == 0               ? PartFlag::first
                          : i + 1 < parts.size() ? PartFlag::middle
                                                 : PartFlag::last;
    write_part(static_cast<uint32_t>(flag), parts[i]);
  }
  next_key_ = key + 1;
}

void RecordWriter::write_part(uint32_t flag, std::string_view part) {
  const uint32_t head[] = {kRecordMagic, flag << 29 | static_cast<uint32_t>(part.size())};
  file_.write(std::as_bytes(std::span(head)));
  file_.write(std::as_bytes(std::span(part)));
  const std::byte zeros[4] = {};
  const uint64_t padding = padded_size(part.size()) - part.size();
  file_.write(std::span(zeros, padding));
  offset_ += kPartHead + part.size() + padding;
}

void RecordWriter::commit() {
  file_.commit();
  if (index_ != nullptr) index_->commit();
}

std::string pack_record(const RecordHeader& header, const std::string& content) {
  const bool one = header.label.size() == 1;
  const auto count = one ? 0 : static_cast<uint32_t>(header.label.size());
  const float label = one ? header.label[0] : 0;
  std::string made;
  const auto put = [&](const auto& value) {
    made.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  put(count);
  put(label);
  put(header.id);
  put(header.id2);
  if (!one) made.append(reinterpret_cast<const char*>(header.label.data()), 4 * header.label.size());
  return made + content;
}

RecordHeader unpack_record(std::string& record, const std::string& where) {
  constexpr size_t kHead = 24;
  MX_CHECK(record.size() >= kHead, FormatError, where, ": expected a record that begins with a header of ",
           kHead, " bytes, got ", record.size(), " bytes");
  uint32_t count;
  float label;
  RecordHeader header;
  std::memcpy(&count, record.data(), 4);
  std::memcpy(&label, record.data() + 4, 4);
  std::memcpy(&header.id, record.data() + 8, 8);
  std::memcpy(&header.id2, record.data() + 16, 8);
  MX_CHECK(count <= (record.size() - kHead) / 4, FormatError, where, ": expected ", count,
           " labels behind the header, got a record of ", record.size(), " bytes");
  header.label.assign(count == 0 ? 1 : count, label);
  if (count > 0) std::memcpy(header.label.data(), record.data() + kHead, size_t{4} * count);
  record.erase(0, kHead + size_t{4} * count);
  return header;
}

namespace {

class RecordSource final : public SampleSource {
 public:
  using Decode = std::function<Sample(std::string, const std::string&)>;
  RecordSource(std::shared_ptr<const RecordFile> file, Decode decode, std::vector<std::string> names)
      : file_(std::move(file)), decode_(std::move(decode)), names_(std::move(names)) {}
  int64_t size() const override { return file_->size(); }
  std::vector<std::string> names() const override { return names_; }
  std::string fetch(int64_t index) const override { return file_->read(index); }
  Sample decode(int64_t index, const std::string& bytes) const override {
    return decode_(bytes, mx::detail::concat(detail::place("recordio", file_->path()), ", record at offset ",
                                             file_->offset(index)));
  }

 private:
  std::shared_ptr<const RecordFile> file_;
  Decode decode_;
  std::vector<std::string> names_;
};

}  // namespace

SourceHandle record_source(std::shared_ptr<const RecordFile> file,
                           std::function<Sample(std::string, const std::string&)> decode,
                           std::vector<std::string> names) {
  MX_CHECK(file != nullptr && decode != nullptr, InvalidArgument,
           "[record_source] expected a file and a function, got an empty one");
  return std::make_shared<const RecordSource>(std::move(file), std::move(decode), std::move(names));
}

SourceHandle image_records(const std::string& path, const std::string& index_path, int64_t channels,
                           const RecordFileOptions& options) {
  return record_source(
      std::make_shared<const RecordFile>(path, index_path, options),
      [channels](std::string record, const std::string& where) {
        const RecordHeader header = unpack_record(record, where);
        HostArray label = header.label.size() == 1 ? host_scalar(header.label[0]) : host_array(header.label);
        Sample sample;
        sample.push_back(decode_image(std::as_bytes(std::span(record)), where, {.channels = channels}));
        sample.push_back(std::move(label));
        return sample;
      },
      {"image", "label"});
}

}  // namespace mx::data
