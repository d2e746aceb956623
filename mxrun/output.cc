#include "mxrun/output.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "mxrun/hosts/text.h"
#include "mxrun/write_all.h"

namespace mx::launch {

Outlet::Outlet(int fd) : fd_(fd) {
  struct stat info {};
  file_ = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  device_ = info.st_dev;
  file_number_ = info.st_ino;
}

void Outlet::add(const char* text, size_t size) {
  if (broken_) return;
  queue_.append(text, size);
}

void Outlet::write_some() {
  // The descriptor is shared with other programs, so it cannot be made non-blocking. A pipe that poll() calls
  // writable has room for PIPE_BUF bytes.
  size_t chunk = std::min<size_t>(queue_.size() - written_, file_ ? kLongestQueue : PIPE_BUF);
  if (chunk == 0) return;
  // Whole lines if there are any, because others may write to the same file.
  const char* const next = queue_.data() + written_;
  if (const void* const newline = memrchr(next, '\n', chunk))
    chunk = static_cast<size_t>(static_cast<const char*>(newline) - next) + 1;
  const ssize_t done = write(fd_, queue_.data() + written_, chunk);
  if (done > 0) {
    written_ += static_cast<size_t>(done);
    within_line_ = queue_[written_ - 1] != '\n';
  } else if (done < 0 && errno != EINTR && errno != EAGAIN) {
    // A reader that has ended, as in `mxrun ... | head`, is no surprise.
    if (errno != EPIPE)
      std::fprintf(stderr, "mxrun: cannot write the output of ranks: %s\n", strerror(errno));
    give_up();
  }
  if (written_ == queue_.size()) {
    queue_.clear();
    written_ = 0;
    within_line_ = false;
  } else if (written_ > kLongestQueue / 2) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

void Outlet::give_up() {
  broken_ = true;
  queue_.clear();
  written_ = 0;
  within_line_ = false;
}

RankStream::RankStream(int fd, Outlet* outlet, Settings settings)
    : fd_(fd), outlet_(outlet), settings_(std::move(settings)) {
  prints_ = settings_.shown && (settings_.tee || settings_.log_path.empty());
  raw_ = settings_.alone && !settings_.tag && !settings_.timestamp;
  if (!settings_.log_path.empty()) {
    // In a folder that others can write to, a link would lead to any file of this user.
    log_ = ::open(settings_.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    MX_CHECK(log_ >= 0, InvalidArgument, "cannot write the log ", settings_.log_path, ": ",
             errno == ELOOP ? "expected a file or none, got a symbolic link" : strerror(errno));
  }
}

RankStream::~RankStream() {
  if (fd_ >= 0) close(fd_);
  if (log_ >= 0) close(log_);
}

bool RankStream::read_some(size_t limit) {
  static char block[65536];
  bool any = false;
  for (size_t total = 0; fd_ >= 0 && total < limit;) {
    const ssize_t got = read(fd_, block, std::min(sizeof(block), limit - total));
    if (got > 0) {
      any = true;
      total += static_cast<size_t>(got);
      consume(block, static_cast<size_t>(got));
      // The reader of mxrun's output is gone: without anybody to read, the rank gets SIGPIPE as it would
      // have without mxrun.
      if (prints_ && outlet_->broken() && log_ < 0 && !settings_.drains) finish();
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      finish();
    } else if (errno == EAGAIN) {
      break;
    }
  }
  return any;
}

void RankStream::consume(const char* text, size_t size) {
  if (log_ >= 0 && !log_lost_ && !write_all(log_, text, size)) {
    // A full disk must not end the job.
    log_lost_ = true;
    std::fprintf(stderr, "mxrun: cannot write the log %s: %s; the rest of it is lost\n",
                 settings_.log_path.c_str(), strerror(errno));
  }
  if (raw_ && prints_) outlet_->add(text, size);
  if (raw_ && !settings_.keep_tail) return;
  const char* const end = text + size;
  while (text < end) {
    // A full piece is printed only when the line goes on, so that its newline does not become a line of its
    // own.
    if (partial_.size() == kLongestLine && *text != '\n') {
      line(partial_.data(), partial_.size());
      partial_.clear();
    }
    const size_t left = static_cast<size_t>(end - text), room = kLongestLine - partial_.size();
    const auto* newline = static_cast<const char*>(std::memchr(text, '\n', std::min(left, room + 1)));
    const char* const stop = newline != nullptr ? newline : text + std::min(left, room);
    if (newline != nullptr && partial_.empty()) {
      line(text, static_cast<size_t>(stop - text));
    } else {
      partial_.append(text, stop);
      if (newline != nullptr) {
        line(partial_.data(), partial_.size());
        partial_.clear();
      }
    }
    text = newline != nullptr ? newline + 1 : stop;
  }
}

void RankStream::line(const char* text, size_t size) {
  if (settings_.keep_tail) {
    tail_.emplace_back(text, std::min(size, kLongestTailLine));
    if (tail_.size() > kTailLines) tail_.pop_front();
  }
  if (raw_ || !prints_) return;
  std::string head;
  if (settings_.timestamp) head = text::time_now(text::Zone::local) + " ";
  if (settings_.tag) head += "[" + settings_.label + "] ";
  outlet_->add(head.data(), head.size());
  outlet_->add(text, size);
  outlet_->add("\n", 1);
}

void RankStream::finish() {
  if (fd_ < 0) return;
  close(fd_);
  fd_ = -1;
  if (!partial_.empty()) line(partial_.data(), partial_.size());
  partial_.clear();
}

std::vector<std::string> RankStream::tail() const {
  std::vector<std::string> lines(tail_.begin(), tail_.end());
  if (!partial_.empty()) lines.push_back(partial_.substr(0, kLongestTailLine));
  return lines;
}

}  // namespace mx::launch
