#include "ndarray/io/atomic_file.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::io {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;
constexpr size_t kMaxWriteBytes = 1 << 30;  // Linux writes at most 2 GiB at once
constexpr int kNameAttempts = 1000;
constexpr mode_t kPermissions = 07777;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

constexpr int kMaxLinks = 40;  // as Linux follows

/// Where writing to `path` would put the bytes. Symbolic links are followed, because a rename would replace
/// the link; of a link to nothing the target is what will be made. Throws FileError for links without an end.
std::string resolved(const std::string& path) {
  std::string target = path;
  for (int links = 0; links <= kMaxLinks; ++links) {
    struct stat info;
    if (::lstat(target.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return target;
    char text[PATH_MAX];
    const ssize_t length = ::readlink(target.c_str(), text, sizeof(text));
    if (length < 0) throw FileError("readlink", target, errno, "while saving '" + path + "'");
    const std::string link(text, static_cast<size_t>(length));
    const bool absolute = link.starts_with('/');
    target = absolute ? link : folder_of(target) + "/" + link;
  }
  throw FileError("open", path, ELOOP, "");
}

/// Makes a write beyond the limit on file sizes (RLIMIT_FSIZE) fail with EFBIG in this thread. By default the
/// system sends SIGXFSZ instead, which ends the process and would leave the temporary file behind.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    was_pending_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    blocked_ = pthread_sigmask(SIG_BLOCK, &signal_, &before_) == 0;
  }
  ~NoSizeSignal() {
    if (!blocked_) return;
    const int code = errno;
    constexpr timespec kNow{0, 0};
    // The signal of a failed write goes to the thread that wrote, and stays pending until it is taken.
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = code;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_ = false, blocked_ = false;
};

/// Unique within this host for as long as the process lives; O_EXCL sees to the rest.
std::string temporary_name(const std::string& target) {
  static std::atomic<uint64_t> counter{0};
  // Room for the rest of the name within the 255 bytes that a file system allows.
  const std::string name = name_of(target).substr(0, 200);
  const std::string number = std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1));
  const std::string folder = target.find('/') == std::string::npos ? "" : folder_of(target) + "/";
  return folder + "." + name + "." + number + ".tmp";
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, FileOps& ops)
    : ops_(ops), path_(path), buffer_(new std::byte[kBufferBytes]) {
  check_path(path, "AtomicFile");
  MX_CHECK(!path.empty() && !name_of(path).empty(), InvalidArgument,
           "[AtomicFile] expected the path of a file, got '", path, "'");
  target_ = resolved(path);
  struct stat old;
  const bool exists = ::stat(target_.c_str(), &old) == 0;
  // The temporary file's name is short enough in any case, so this would be found out by the rename.
  if (!exists && errno == ENAMETOOLONG) fail("open", path_, ENAMETOOLONG);
  if (exists && !S_ISREG(old.st_mode))
    fail("open", path_, S_ISDIR(old.st_mode) ? EISDIR : 0, "expected a regular file to replace");
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ = temporary_name(target_);
    fd_ = ops_.open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0) break;
    // Another process of that number, of the past or of another machine, has left the name behind.
    const bool again = (errno == EEXIST && attempt < kNameAttempts) || errno == EINTR;
    if (!again) fail("open", path_, errno, "cannot make a temporary file in the same folder: " + temporary_);
  }
  if (exists && ops_.fchmod(fd_, old.st_mode & kPermissions) != 0) fail("chmod", temporary_, errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::fail(const char* operation, const std::string& path, int code, const std::string& detail) {
  std::string text = detail;
  if (fd_ >= 0) {
    if (!text.empty()) text += ", ";
    text += std::to_string(on_file_) + " of " + std::to_string(bytes_) + " bytes written";
    if (path != path_) text += ", while saving '" + path_ + "'";
  }
  discard();
  throw FileError(operation, path, code, text);
}

void AtomicFile::require_open(const char* operation) const {
  MX_CHECK(fd_ >= 0, InvalidState, "[AtomicFile] expected no ", operation,
           " after commit() or a failure, got one for '", path_, "'");
}

void AtomicFile::write(Bytes bytes) {
  require_open("write");
  bytes_ += bytes.size();
  if (bytes.size() > kBufferBytes - buffered_) flush_buffer();
  if (bytes.size() >= kBufferBytes) return write_through(bytes.data(), bytes.size());
  if (!bytes.empty()) std::memcpy(buffer_.get() + buffered_, bytes.data(), bytes.size());
  buffered_ += bytes.size();
}

void AtomicFile::write_through(const std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  const NoSizeSignal no_signal;
  while (bytes > 0) {
    const ssize_t written = ops_.write(fd_, data, std::min(bytes, kMaxWriteBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", temporary_, errno);
    // A device that takes nothing and says nothing would otherwise be asked for ever.
    if (written == 0) fail("write", temporary_, ENOSPC, "the system accepted no bytes");
    data += written;
    bytes -= static_cast<size_t>(written);
    on_file_ += static_cast<uint64_t>(written);
  }
}

void AtomicFile::flush_buffer() {
  const size_t bytes = std::exchange(buffered_, 0);
  write_through(buffer_.get(), bytes);
}

void AtomicFile::commit() {
  require_open("commit");
  flush_buffer();
  while (ops_.fsync(fd_) != 0)
    if (errno != EINTR) fail("fsync", temporary_, errno);
  // Network file systems report what they could not write as late as here. The descriptor is gone, whatever
  // close says, so that it is never closed twice.
  const int closed = ops_.close(fd_);
  const int close_code = errno;
  if (closed != 0 && close_code != EINTR) {
    fd_ = -1;
    ops_.unlink(temporary_.c_str());
    throw FileError("close", temporary_, close_code, "while saving '" + path_ + "'");
  }
  fd_ = -1;
  if (ops_.rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int code = errno;
    ops_.unlink(temporary_.c_str());
    throw FileError("rename", path_, code,
                    "from " + temporary_ + ", " + std::to_string(bytes_) + " bytes written");
  }
  flush_folder();
}

void AtomicFile::flush_folder() {
  const std::string folder = folder_of(target_);
  const std::string note = "the new content of '" + path_ + "' is in place, but may not survive a crash";
  int fd;
  do {
    fd = ops_.open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    // A folder that may be written and not read cannot be flushed; the rename itself has succeeded.
    if (errno == EACCES) return;
    throw FileError("fsync folder", folder, errno, note);
  }
  int failed, code;
  do {
    failed = ops_.fsync(fd);
    code = errno;
  } while (failed != 0 && code == EINTR);
  ops_.close(fd);
  // EINVAL: this file system does not flush folders, and none of its users can do more.
  if (failed != 0 && code != EINVAL) throw FileError("fsync folder", folder, code, note);
}

void AtomicFile::discard() noexcept {
  if (fd_ < 0) return;
  ops_.close(fd_);
  fd_ = -1;
  ops_.unlink(temporary_.c_str());
}

}  // namespace mx::io
