// MappedFile: the bytes of a file in memory, mapped where that is possible and read where it is not.
//
// The mapping is private: nothing that is done to the bytes ever reaches the file. Pages are loaded at first
// use. Page-aligned at its begin. A file must not be truncated by others while it is mapped (the process
// would get SIGBUS); AtomicFile never does that, it replaces.
//
// Thread-safe for reading. Movable, so that a shared_ptr can own it for all the arrays that look into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ndarray/io/byte_sink.h"

namespace mx::io {

class MappedFile {
 public:
  enum class Access {
    read_only,      ///< writing to the bytes is a segmentation fault
    copy_on_write,  ///< writing is allowed and stays within this process
  };
  enum class How {
    map,   ///< map, or read when the file system cannot map
    read,  ///< always read
  };

  /// Throws FileError when the file cannot be opened, is no regular file, or cannot be read.
  explicit MappedFile(const std::string& path, Access access = Access::read_only, How how = How::map);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  uint64_t size() const { return bytes_; }
  bool mapped() const { return mapped_; }

  Bytes bytes() const { return {data_, bytes_}; }
  /// `bytes` bytes from `offset` on. Throws FormatError when the file has no such bytes.
  Bytes bytes(uint64_t offset, uint64_t bytes) const;
  /// The same, to be written to; throws InvalidState unless the file was opened copy_on_write.
  std::span<std::byte> writable(uint64_t offset, uint64_t bytes);

 private:
  void map_or_read(int fd, uint64_t size, Access access, How how);
  void read_all(int fd, uint64_t size);
  void release() noexcept;

  std::string path_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool mapped_ = false;
  bool writable_ = false;
};

}  // namespace mx::io
