// AtomicFile: writes a file so that its name always refers to either the old content or all of the new
// content, even if a call fails or the process or the machine stops.
//
//   AtomicFile file(path);
//   file.write(bytes);  ...
//   file.commit();
//
// The bytes are written to a new file in the same folder; commit() flushes it to the disk, renames it, and
// flushes the folder. Without commit(), or if anything fails, the temporary file is removed and the old file
// stays. A process that is killed leaves its temporary file, ".NAME.<digits>.tmp", behind; it may be deleted.
// Source of the order of calls: T. Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.
//
// A symbolic link is followed: the file that it names is replaced, or created if there is none. A replaced
// file keeps its permissions; a new one gets 0666 less the umask. Owner, hard links and extended attributes
// are those of a new file.
//
// Throws FileError, which names the call, the path, the system's text, and how many bytes had been written.
// Not thread-safe. Two objects may write the same path at the same time; the last to commit wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ndarray/io/byte_sink.h"
#include "ndarray/io/file_ops.h"

namespace mx::io {

class AtomicFile : public ByteSink {
 public:
  /// Creates the temporary file. Throws FileError (no such folder, not permitted, read-only, not a regular
  /// file, a name that is too long, a loop of links) and InvalidArgument for a path that is empty or has a
  /// byte of value 0. `ops` must outlive the object.
  explicit AtomicFile(const std::string& path, FileOps& ops = FileOps::posix());
  /// Removes the temporary file unless commit() has returned.
  ~AtomicFile() override;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  using ByteSink::write;
  /// Appends bytes. Throws FileError; after that the object may only be destroyed.
  void write(Bytes bytes) override;

  /// Makes the new content visible and durable. If it throws FileError, the old content is in place, with one
  /// exception: if the flush of the folder fails (operation "fsync folder"), the new content is visible and
  /// complete, but after a crash of the machine the old content may be there again.
  void commit();

  /// Bytes given to write() so far.
  uint64_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail(const char* operation, const std::string& path, int code,
                         const std::string& detail = {});
  void require_open(const char* operation) const;
  void write_through(const std::byte* data, size_t bytes);
  void flush_buffer();
  void flush_folder();
  void discard() noexcept;

  FileOps& ops_;
  std::string path_;    // as given, for messages
  std::string target_;  // with links resolved
  std::string temporary_;
  int fd_ = -1;
  std::unique_ptr<std::byte[]> buffer_;  // small writes are collected here
  size_t buffered_ = 0;
  uint64_t bytes_ = 0;
  uint64_t on_file_ = 0;
};

}  // namespace mx::io
