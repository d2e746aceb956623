// Stream: a connected socket, in clear text or with TLS. Internal.
//
// Its calls never block. In clear text each is one system call. secure() begins TLS if the identity asks for
// it; tls_session.h says how the calls behave then.
//
// The destructor closes the socket; with TLS it sends close_notify first.
//
// Thread-safety: one thread at a time.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "comm/net/fd.h"
#include "comm/net/handshake.h"
#include "comm/net/tls_session.h"

namespace mx::comm {

class Stream {
 public:
  Stream() = default;
  // Not explicit: a socket is a stream in clear text.
  Stream(Fd socket) : socket_(std::move(socket)) {}  // NOLINT(google-explicit-constructor)
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&& other) noexcept {
    tls_ = std::move(other.tls_);  // the old session ends before its socket does
    socket_ = std::move(other.socket_);
    return *this;
  }

  int fd() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  void reset() { *this = Stream(); }
  bool is_encrypted() const { return tls_ != nullptr; }

  /// Encrypts what follows if `self` has a TlsContext. Throws as TlsSession does.
  void secure(Handshake::Side side, const Identity& self) {
    if (self.tls != nullptr) tls_ = std::make_unique<TlsSession>(fd(), side, self);
  }

  /// Sends what the socket takes: returns the bytes, or -1 and sets errno. After EAGAIN the next call must
  /// begin with the same bytes. Changes nothing that `parts` refers to.
  ssize_t send(iovec* parts, size_t count) noexcept {
    if (tls_) [[unlikely]]
      return tls_->send(parts, count);
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    return ::sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  ssize_t send(const void* data, size_t bytes) noexcept {
    iovec part{const_cast<void*>(data), bytes};
    return send(&part, 1);
  }
  /// Receives what is there: returns the bytes, 0 at the end of the connection, or -1 and sets errno.
  ssize_t receive(iovec* parts, size_t count) noexcept {
    if (tls_) [[unlikely]]
      return tls_->receive(parts, count);
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    return ::recvmsg(fd(), &message, MSG_DONTWAIT);
  }
  ssize_t receive(void* data, size_t bytes) noexcept {
    iovec part{data, bytes};
    return receive(&part, 1);
  }

  /// Received bytes of which poll() does not know. A reader receives them before it waits.
  size_t pending() const noexcept { return tls_ ? tls_->pending() : 0; }
  /// The events of poll() for a receive() (POLLIN) or send() (POLLOUT) that has returned EAGAIN.
  short events(short wanted) const noexcept { return tls_ ? tls_->events(wanted) : wanted; }
  /// Returns whether the other side has closed the connection, and nothing of it remains to be received.
  bool ended() noexcept;
  /// Ends the sending direction: sends close_notify if the stream uses TLS, then calls shutdown(SHUT_WR).
  void shut_down() noexcept;

  /// For Handshake::receive(): empty in clear text.
  std::string_view binding() const { return tls_ ? tls_->binding() : std::string_view(); }
  /// Returns why TLS has failed, after EPROTO; otherwise null.
  std::exception_ptr failure() const { return tls_ ? tls_->failure() : nullptr; }
  /// Returns what an error of send() or receive() means.
  std::string text_of(int error) const;

 private:
  Fd socket_;
  std::unique_ptr<TlsSession> tls_;  // ends before the socket
};

}  // namespace mx::comm
