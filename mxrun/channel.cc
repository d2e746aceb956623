#include "mxrun/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace mx::launch {
namespace {

constexpr uint32_t kLongestFrame = 64u << 20;

class SocketChannel : public Channel {
 public:
  explicit SocketChannel(int fd) : fd_(fd) {}
  ~SocketChannel() override { close(fd_); }

  void send(const std::string& message) override {
    const auto size = static_cast<uint32_t>(message.size());
    std::string frame(reinterpret_cast<const char*>(&size), sizeof(size));
    frame += message;
    for (size_t at = 0; at < frame.size() && !broken_;) {
      const ssize_t sent = ::send(fd_, frame.data() + at, frame.size() - at, MSG_NOSIGNAL);
      if (sent >= 0) {
        at += static_cast<size_t>(sent);
      } else if (errno != EINTR) {
        broken_ = true;
      }
    }
  }

  int readable_fd() const override { return fd_; }

  bool receive(std::string* message) override {
    if (take(message)) return true;
    char block[65536];
    while (!ended_) {
      const ssize_t got = recv(fd_, block, sizeof(block), MSG_DONTWAIT);
      if (got > 0) {
        received_.append(block, static_cast<size_t>(got));
        if (take(message)) return true;
      } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
        ended_ = true;
      } else if (errno == EAGAIN) {
        return false;
      }
    }
    return false;
  }

  bool closed() const override { return ended_; }

 private:
  bool take(std::string* message) {
    uint32_t size = 0;
    if (received_.size() < sizeof(size)) return false;
    std::memcpy(&size, received_.data(), sizeof(size));
    if (size > kLongestFrame) {
      ended_ = true;
      return false;
    }
    if (received_.size() - sizeof(size) < size) return false;
    *message = received_.substr(sizeof(size), size);
    received_.erase(0, sizeof(size) + size);
    return true;
  }

  int fd_;
  std::string received_;
  bool broken_ = false, ended_ = false;
};

}  // namespace

std::unique_ptr<Channel> socket_channel(int fd) { return std::make_unique<SocketChannel>(fd); }

}  // namespace mx::launch
