// MessageQueue: the messages that wait for one direction of a connection. Internal.
//
// In its steady state it allocates nothing.
//
// Thread-safety: none.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "comm/ring.h"

namespace mx::comm {

class MessageQueue {
 public:
  bool empty() const { return ring_.empty(); }
  /// Number of messages that were added, and of those that are complete.
  uint64_t added() const { return completed_ + ring_.size(); }
  uint64_t completed() const { return completed_; }
  /// Bytes of the oldest message, and how many of them have been transferred. Precondition: not empty.
  size_t front_bytes() const { return ring_.front().bytes; }
  size_t front_done() const { return ring_.front().done; }

  void add(std::byte* data, size_t bytes) {
    ring_.push() = {data, bytes, 0};
    drop_complete();
  }

  /// Writes what is still to be transferred, at most `most_bytes`, into `parts`. Returns the number of parts
  /// and adds their bytes to `total`.
  int gather(iovec* parts, int most_parts, size_t most_bytes, size_t& total) const {
    int count = 0;
    for (size_t i = 0; i < ring_.size() && count < most_parts && most_bytes > 0; ++i) {
      const Message& message = ring_[i];
      const size_t bytes = std::min(message.bytes - message.done, most_bytes);
      if (bytes == 0) continue;
      parts[count++] = {message.data + message.done, bytes};
      most_bytes -= bytes;
      total += bytes;
    }
    return count;
  }

  /// Records that the next `bytes` bytes have been transferred.
  void advance(size_t bytes) {
    while (bytes > 0) {
      Message& message = ring_.front();
      const size_t now = std::min(bytes, message.bytes - message.done);
      message.done += now;
      bytes -= now;
      drop_complete();
    }
  }

 private:
  struct Message {
    std::byte* data = nullptr;
    size_t bytes = 0, done = 0;
  };

  void drop_complete() {
    while (!ring_.empty() && ring_.front().done == ring_.front().bytes) {
      ring_.pop();
      ++completed_;
    }
  }

  Ring<Message> ring_;
  uint64_t completed_ = 0;
};

}  // namespace mx::comm
