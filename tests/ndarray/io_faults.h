// An operating system in which a chosen call fails.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/io/file_ops.h"

namespace mx::test {

/// Counts the calls that can fail and makes one of them fail. Writes at most `most` bytes per call.
class Faults : public io::FileOps {
 public:
  explicit Faults(int fail_at = -1, int code = EIO, size_t most = SIZE_MAX)
      : fail_at_(fail_at), code_(code), most_(most) {}

  int open(const char* path, int flags, mode_t mode) override {
    return fails("open") ? -1 : io::FileOps::open(path, flags, mode);
  }
  ssize_t write(int fd, const void* data, size_t bytes) override {
    return fails("write") ? -1 : io::FileOps::write(fd, data, std::min(bytes, most_));
  }
  int fchmod(int fd, mode_t mode) override { return fails("fchmod") ? -1 : io::FileOps::fchmod(fd, mode); }
  int fsync(int fd) override { return fails("fsync") ? -1 : io::FileOps::fsync(fd); }
  int close(int fd) override {
    const bool fail = fails("close");
    const int result = io::FileOps::close(fd);  // always closed, as on a real system
    if (fail) errno = code_;
    return fail ? -1 : result;
  }
  int rename(const char* from, const char* to) override {
    return fails("rename") ? -1 : io::FileOps::rename(from, to);
  }

  std::vector<std::string> calls;

 private:
  bool fails(const char* name) {
    calls.emplace_back(name);
    if (static_cast<int>(calls.size()) - 1 != fail_at_) return false;
    errno = code_;
    return true;
  }
  int fail_at_, code_;
  size_t most_;
};

}  // namespace mx::test
