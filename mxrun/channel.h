// Channel: messages between the launcher and the agent of one node, in order, each a short text.
//
// Thread-safety: one thread at a time.
#pragma once

#include <memory>
#include <string>

namespace mx::launch {

class Channel {
 public:
  virtual ~Channel() = default;

  /// Sends a message. Does nothing if the other side is gone.
  virtual void send(const std::string& message) = 0;
  /// A file descriptor that is readable when receive() should be called.
  virtual int readable_fd() const = 0;
  /// Takes the next message that has arrived, without waiting. Returns false if there is none.
  virtual bool receive(std::string* message) = 0;
  /// True when the other side is gone and every message from it has been received.
  virtual bool closed() const = 0;
};

/// Messages over a connected stream socket that the channel owns, each preceded by its length (4 bytes).
/// Between processes of one machine.
std::unique_ptr<Channel> socket_channel(int fd);

}  // namespace mx::launch
