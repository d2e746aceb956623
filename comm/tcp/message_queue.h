// MessageQueue: the messages that wait for one direction of a connection. Internal.
//
// A ring that grows and never shrinks, so that a queue in its steady state allocates nothing.
//
// Thread-safety: none.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mx::comm {

class MessageQueue {
 public:
  bool empty() const { return size_ == 0; }
  /// Number of messages that were added, and of those that are complete.
  uint64_t added() const { return completed_ + size_; }
  uint64_t completed() const { return completed_; }
  /// Bytes of the oldest message, and how many of them have been transferred. Precondition: not empty.
  size_t front_bytes() const { return ring_[first_].bytes; }
  size_t front_done() const { return ring_[first_].done; }

  void add(std::byte* data, size_t bytes) {
    if (size_ == ring_.size()) grow();
    ring_[(first_ + size_) & (ring_.size() - 1)] = {data, bytes, 0};
    ++size_;
    drop_complete();
  }

  /// Writes what is still to be transferred, at most `most_bytes`, into `parts`. Returns the number of parts
  /// and adds their bytes to `total`.
  int gather(iovec* parts, int most_parts, size_t most_bytes, size_t& total) const {
    int count = 0;
    for (size_t i = 0; i < size_ && count < most_parts && most_bytes > 0; ++i) {
      const Message& message = ring_[(first_ + i) & (ring_.size() - 1)];
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
      Message& message = ring_[first_];
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
    while (size_ > 0 && ring_[first_].done == ring_[first_].bytes) {
      first_ = (first_ + 1) & (ring_.size() - 1);
      --size_;
      ++completed_;
    }
  }
  void grow() {
    std::vector<Message> larger(std::max<size_t>(16, 2 * ring_.size()));
    for (size_t i = 0; i < size_; ++i) larger[i] = ring_[(first_ + i) & (ring_.size() - 1)];
    ring_.swap(larger);
    first_ = 0;
  }

  std::vector<Message> ring_;  ///< its size is 0 or a power of two
  size_t first_ = 0, size_ = 0;
  uint64_t completed_ = 0;
};

}  // namespace mx::comm
