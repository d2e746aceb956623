// Link: messages over one connected stream socket. WakeUp: ends the poll() of another thread. Internal.
//
// The owner polls the socket and calls read() and write() when it is ready. Both do as much as is possible
// without blocking. Elements are read straight to their place and written straight from it; several small
// messages share a system call.
//
// Thread-safety: one thread at a time, except WakeUp::signal().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/net/fd.h"
#include "comm/net/stream.h"
#include "kvstore/server/wire.h"

namespace mx::kv {

class Link {
 public:
  /// Messages of higher priority are sent first; those of one priority in the order of send().
  static constexpr int kFirst = INT32_MAX;

  Link(comm::Stream stream, Decoder::Accept accept);

  int fd() const { return stream_.fd(); }
  void send(Message message, int priority = 0);
  bool wants_to_write() const { return !waiting_.empty() || !batch_.empty(); }
  /// Throws PeerLost if the connection has ended, CommunicationError for other errors.
  void write();
  /// Calls `take` for each complete message. Returns false if the other side has ended the connection between
  /// two messages. Throws PeerLost if it has ended within one, ProtocolError for malformed messages, and what
  /// `take` and Accept throw.
  bool read(const std::function<void(Message)>& take);

 private:
  struct Part {
    std::array<std::byte, kHeaderBytes> header;
    Bytes body;
  };

  void fill_batch();
  [[noreturn]] void throw_broken(const char* what, int error) const;
  bool consume(size_t bytes, const std::function<void(Message)>& take);

  comm::Stream stream_;
  Decoder decoder_;
  std::map<int, std::deque<Message>, std::greater<>> waiting_;  // by priority
  std::deque<Part> batch_;                                      // being written
  size_t written_ = 0;                                          // bytes of batch_.front()
  std::vector<std::byte> spare_;                                // bytes read behind the decoder's space
};

class WakeUp {
 public:
  WakeUp();
  int fd() const { return fd_.get(); }
  /// Safe from any thread and from signal handlers.
  void signal();
  void clear();

 private:
  comm::Fd fd_;
};

}  // namespace mx::kv
