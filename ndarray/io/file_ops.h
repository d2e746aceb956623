// FileOps: the calls to the operating system that AtomicFile makes, as an object, so that a test can make any
// of them fail. A small version of the idea of LevelDB's Env.
//
// Each function behaves as the system call of the same name: it returns the result, or -1 with errno set.
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace mx::io {

class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t write(int fd, const void* data, size_t bytes);
  virtual int fchmod(int fd, mode_t mode);
  virtual int fsync(int fd);
  virtual int close(int fd);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);

  /// Returns the object that calls the operating system.
  static FileOps& posix();
};

}  // namespace mx::io
