#include "comm/net/stream.h"

#include <cstring>

namespace mx::comm {

bool Stream::ended() noexcept {
  if (tls_) return tls_->ended();
  char byte = 0;
  const ssize_t got = ::recv(fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void Stream::shut_down() noexcept {
  if (tls_) tls_->close_notify();
  ::shutdown(fd(), SHUT_WR);
}

std::string Stream::text_of(int error) const {
  if (error == EPROTO && tls_ && !tls_->failure_text().empty()) return tls_->failure_text();
  return std::strerror(error);
}

}  // namespace mx::comm
