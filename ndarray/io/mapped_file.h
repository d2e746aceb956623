// MappedFile: the bytes of a file in memory, mapped if that is possible and read otherwise.
//
// The mapping is private: changes of the bytes never reach the file. Pages are loaded at first use. The first
// byte is page-aligned. The file must not be truncated while it is mapped, because the process would get
// SIGBUS. AtomicFile never truncates a file; it replaces it.
//
// Thread-safe for reading. Movable, so that a shared_ptr can own it for all arrays whose elements are in it.
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
    map,   ///< map, or read if the file system cannot map
    read,  ///< always read
  };

  /// Throws FileError if the file cannot be opened, is not a regular file, or cannot be read.
  explicit MappedFile(const std::string& path, Access access = Access::read_only, How how = How::map);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  uint64_t size() const { return bytes_; }
  bool mapped() const { return mapped_; }

  Bytes bytes() const { return {data_, bytes_}; }
  /// Returns `bytes` bytes from `offset` on. Throws FormatError if the file does not have them.
  Bytes bytes(uint64_t offset, uint64_t bytes) const;
  /// The same for writing; throws InvalidState unless the file was opened copy_on_write.
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
