// Output of the ranks: read from their pipes, cut into lines, tagged, printed and logged.
//
// Memory is bounded: while kLongestQueue bytes wait to be printed, the pipes are not read, so a rank that
// prints faster than the reader of mxrun's output takes it waits in its own write.
//
// Thread-safety: one thread at a time.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "mxrun/plan.h"

namespace mx::launch {

/// Standard output or error of this process, with a bounded queue before it.
class Outlet {
 public:
  static constexpr size_t kLongestQueue = 1 << 20;

  explicit Outlet(int fd);

  void add(const char* text, size_t size);
  bool full() const { return queue_.size() - written_ >= kLongestQueue; }
  bool empty() const { return queue_.size() == written_; }
  /// True when the reader is gone. What is added is then thrown away.
  bool broken() const { return broken_; }
  /// Tells that the reader is gone, behind a carrier that still reads.
  void give_up();
  int fd() const { return fd_; }
  /// True if this class has cut a line: its beginning has been written and its rest waits. A line that the
  /// rank itself has left unfinished does not count, because its rest may never come.
  bool within_line() const { return within_line_; }
  /// True if both write to the same file, pipe or terminal. Then neither should write while the other is
  /// within a line.
  bool shares_file_with(const Outlet& other) const {
    return device_ == other.device_ && file_number_ == other.file_number_;
  }
  /// Writes as much as does not block. Call it when poll() says that fd() is writable.
  void write_some();

 private:
  int fd_;
  bool file_;  ///< a regular file, to which writes do not block
  bool broken_ = false;
  bool within_line_ = false;  ///< the rest of the line whose beginning was written last waits in queue_
  uint64_t device_ = 0, file_number_ = 0;
  std::string queue_;
  size_t written_ = 0;  ///< of queue_
};

/// One stream (standard output or error) of one process.
class RankStream {
 public:
  /// A longer line is printed in pieces of this many bytes, each as a line with its own tag.
  static constexpr size_t kLongestLine = 256 << 10;
  static constexpr size_t kTailLines = 20, kLongestTailLine = 2000;

  struct Settings {
    bool tag = false, timestamp = false, tee = true, shown = true;
    bool keep_tail = false;  ///< remember the last lines
    bool alone = false;      ///< the only process that prints: untagged bytes are passed on as they come
    bool drains = false;     ///< reads on, and throws away, when the reader of mxrun's output is gone
    std::string label;       ///< "0:3": node and rank
    std::string log_path;    ///< empty: no log
  };

  /// Owns `fd`, which must be non-blocking; -1 until attach(). Throws InvalidArgument if the log cannot be
  /// written.
  RankStream(int fd, Outlet* outlet, Settings settings);
  ~RankStream();
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;

  /// Takes the descriptor of a stream that was made without one.
  void attach(int fd) { fd_ = fd; }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  /// True if the stream should be read when there is something to read.
  bool wants() const { return open() && !(prints_ && outlet_->full()); }
  /// Reads at most `limit` bytes without waiting. Returns false if there was nothing to read.
  bool read_some(size_t limit);
  /// Passes on an unfinished last line and closes.
  void finish();
  /// The last lines, oldest first.
  std::vector<std::string> tail() const;

 private:
  void consume(const char* text, size_t size);
  void line(const char* text, size_t size);

  int fd_;
  Outlet* outlet_;
  Settings settings_;
  bool prints_, raw_;  ///< raw_: bytes are passed on as they come, not by lines
  int log_ = -1;
  bool log_lost_ = false;  // part of the log could not be written
  std::string partial_;
  std::deque<std::string> tail_;
};

}  // namespace mx::launch
