#include "ndarray/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::io {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kMaxReadBytes = 1 << 30;
constexpr size_t kUnknownSizeBytes = 1 << 16;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path, Access access, How how)
    : path_(path), writable_(access == Access::copy_on_write) {
  check_path(path, "open");
  // Without O_NONBLOCK the open of a pipe would wait for its other end.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw FileError("open", path, errno, "");
  struct stat info;
  if (::fstat(file.get(), &info) != 0) throw FileError("stat", path, errno, "");
  if (!S_ISREG(info.st_mode))
    throw FileError("open", path, S_ISDIR(info.st_mode) ? EISDIR : 0,
                    std::string("expected a regular file, got ") + kind_of(info.st_mode));
  try {
    map_or_read(file.get(), static_cast<uint64_t>(info.st_size), access, how);
  } catch (...) {
    release();
    throw;
  }
}

MappedFile::~MappedFile() { release(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, false)),
      writable_(other.writable_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapped_ = std::exchange(other.mapped_, false);
  writable_ = other.writable_;
  return *this;
}

void MappedFile::map_or_read(int fd, uint64_t size, Access access, How how) {
  if (how == How::map && size > 0) {
    const int protection = access == Access::copy_on_write ? PROT_READ | PROT_WRITE : PROT_READ;
    void* address = ::mmap(nullptr, size, protection, MAP_PRIVATE, fd, 0);
    if (address != MAP_FAILED) {
      data_ = static_cast<std::byte*>(address);
      bytes_ = size;
      mapped_ = true;
      return;
    }
  }
  read_all(fd, size);
}

// `size` is the size that the system reports. Files in /proc report 0 and have content all the same.
void MappedFile::read_all(int fd, uint64_t size) {
  size_t capacity = size > 0 ? size : kUnknownSizeBytes;
  for (;;) {
    const size_t rounded = (capacity + kPageBytes - 1) / kPageBytes * kPageBytes;
    auto* larger = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, rounded));
    MX_CHECK(larger != nullptr, OutOfMemory, "[read] expected ", capacity, " bytes of memory for '", path_,
             "', got none");
    if (bytes_ > 0) std::memcpy(larger, data_, bytes_);
    std::free(data_);
    data_ = larger;
    while (bytes_ < capacity) {
      const ssize_t got = ::read(fd, data_ + bytes_, std::min(capacity - bytes_, kMaxReadBytes));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw FileError("read", path_, errno,
                        std::to_string(bytes_) + " of " + std::to_string(size) + " bytes read");
      if (got == 0) return;  // the file was truncated after it was opened: the checks of its format detect it
      bytes_ += static_cast<size_t>(got);
    }
    if (size > 0) return;
    capacity *= 2;
  }
}

void MappedFile::release() noexcept {
  if (mapped_)
    ::munmap(data_, bytes_);
  else
    std::free(data_);
  data_ = nullptr;
  bytes_ = 0;
  mapped_ = false;
}

Bytes MappedFile::bytes(uint64_t offset, uint64_t bytes) const {
  MX_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, FormatError, "[read] '", path_, "': expected ",
           bytes, " bytes at offset ", offset, ", got a file of ", bytes_);
  return {data_ + offset, bytes};
}

std::span<std::byte> MappedFile::writable(uint64_t offset, uint64_t bytes) {
  MX_CHECK(writable_, InvalidState, "[write] '", path_, "': expected a file opened copy_on_write");
  const Bytes part = this->bytes(offset, bytes);
  return {data_ + offset, part.size()};
}

}  // namespace mx::io
