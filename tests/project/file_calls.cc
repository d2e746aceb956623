// A library to preload. It kills a program while it writes a file, or simulates a full disk. It counts the
// calls by which io::AtomicFile writes: those on ".tmp" files and on folders that are flushed.
//
// MX_TEST_KILL_AT=N: SIGKILL instead of the N-th of these calls, counted from 1; half of a write is done
// first. MX_TEST_KILL_AT_FILE=N: SIGKILL before the N-th ".tmp" file is created. MX_TEST_DISK_BYTES=N: the
// disk is full after N bytes.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

constexpr int kMaxFiles = 4096;
std::atomic<bool> watched[kMaxFiles];
std::atomic<long> calls{0}, files{0};

long setting(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atol(text);
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

bool is_watched(int fd) { return fd >= 0 && fd < kMaxFiles && watched[fd]; }

bool is_time() {
  static const long at = setting("MX_TEST_KILL_AT");
  return ++calls == at;
}

void count() {
  if (is_time()) kill(getpid(), SIGKILL);
}

std::atomic<long>& room() {
  static std::atomic<long> bytes{setting("MX_TEST_DISK_BYTES")};  // negative: no limit
  return bytes;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  const bool file = std::string_view(path).ends_with(".tmp");
  const bool ours = file || (flags & O_DIRECTORY) != 0;
  static const long at_file = setting("MX_TEST_KILL_AT_FILE");
  if (file && ++files == at_file) kill(getpid(), SIGKILL);
  if (ours) count();
  static auto* const real = next<int(const char*, int, ...)>("open");
  const int fd = real(path, flags, mode);
  if (fd >= 0 && fd < kMaxFiles) watched[fd] = ours;
  return fd;
}

ssize_t write(int fd, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (!is_watched(fd)) return real(fd, data, bytes);
  if (is_time()) {
    (void)!real(fd, data, bytes / 2);
    kill(getpid(), SIGKILL);
  }
  if (room() < 0) return real(fd, data, bytes);
  if (room() == 0) {
    errno = ENOSPC;
    return -1;
  }
  const ssize_t written = real(fd, data, std::min(bytes, static_cast<size_t>(room())));
  if (written > 0) room() -= written;
  return written;
}

int fchmod(int fd, mode_t mode) noexcept {
  if (is_watched(fd)) count();
  static auto* const real = next<int(int, mode_t)>("fchmod");
  return real(fd, mode);
}

int fsync(int fd) {
  if (is_watched(fd)) count();
  static auto* const real = next<int(int)>("fsync");
  return real(fd);
}

int close(int fd) {
  if (is_watched(fd)) {
    count();
    watched[fd] = false;
  }
  static auto* const real = next<int(int)>("close");
  return real(fd);
}

int rename(const char* from, const char* to) noexcept {
  if (std::string_view(from).ends_with(".tmp")) count();
  static auto* const real = next<int(const char*, const char*)>("rename");
  return real(from, to);
}

}  // extern "C"
