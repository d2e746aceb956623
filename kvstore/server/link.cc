#include "kvstore/server/link.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::kv {
namespace {

constexpr size_t kSpareBytes = 32 * 1024;
constexpr size_t kBatchBytes = 1 << 20;  // a batch with so many bytes is not extended
constexpr size_t kBatchMessages = 64;
constexpr size_t kBytesPerRead = 16 << 20;  // then other links have their turn

}  // namespace

void Link::throw_broken(const char* what, int error) const {
  const std::string text =
      mx::detail::concat("[kvstore] expected to ", what, ", got ", stream_.text_of(error));
  if (error == ECONNRESET || error == EPIPE || error == ETIMEDOUT || error == EPROTO) throw PeerLost(text);
  throw CommunicationError(text);
}

Link::Link(comm::Stream stream, Decoder::Accept accept)
    : stream_(std::move(stream)), decoder_(std::move(accept)), spare_(kSpareBytes) {}

void Link::send(Message message, int priority) {
  message.header.bytes = message.body.size;
  waiting_[priority].push_back(std::move(message));
}

void Link::fill_batch() {
  size_t bytes = 0;
  while (!waiting_.empty() && batch_.size() < kBatchMessages && bytes < kBatchBytes) {
    auto first = waiting_.begin();
    Message message = std::move(first->second.front());
    first->second.pop_front();
    if (first->second.empty()) waiting_.erase(first);
    Part& part = batch_.emplace_back();
    std::byte header[kHeaderBytes];
    encode(message.header, header);
    std::copy(std::begin(header), std::end(header), part.header.begin());
    part.body = std::move(message.body);
    bytes += kHeaderBytes + part.body.size;
  }
}

void Link::write() {
  for (;;) {
    if (batch_.empty()) fill_batch();
    if (batch_.empty()) return;
    iovec parts[2 * kBatchMessages];
    size_t count = 0, skip = written_;
    const auto add = [&](std::byte* data, size_t bytes) {
      const size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped) parts[count++] = {data + skipped, bytes - skipped};
    };
    for (Part& part : batch_) {
      add(part.header.data(), kHeaderBytes);
      add(part.body.data, part.body.size);
    }
    const ssize_t sent = stream_.send(parts, count);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      throw_broken("send", errno);
    }
    written_ += static_cast<size_t>(sent);
    while (!batch_.empty() && written_ >= kHeaderBytes + batch_.front().body.size) {
      written_ -= kHeaderBytes + batch_.front().body.size;
      batch_.pop_front();
    }
  }
}

bool Link::consume(size_t bytes, const std::function<void(Message)>& take) {
  if (!decoder_.filled(bytes)) return false;
  take(decoder_.take());
  return true;
}

bool Link::read(const std::function<void(Message)>& take) {
  for (size_t total = 0, left = kBytesPerRead; left > 0;
       left = std::max(kBytesPerRead - std::min(total, kBytesPerRead), stream_.pending())) {
    std::span<std::byte> space = decoder_.space();
    // What poll() does not know of must be taken, but no more than that.
    const bool only_pending = total >= kBytesPerRead;
    if (only_pending) space = space.first(std::min(space.size(), left));
    iovec parts[2] = {{space.data(), space.size()}, {spare_.data(), spare_.size()}};
    const ssize_t got = stream_.receive(parts, only_pending ? 1 : 2);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      throw_broken("receive", errno);
    }
    if (got == 0) {
      MX_CHECK(decoder_.between_messages(), PeerLost,
               "[kvstore] expected the rest of a message, got the end of the connection");
      return false;
    }
    const auto bytes = static_cast<size_t>(got);
    total += bytes;
    const size_t direct = std::min(bytes, space.size());
    consume(direct, take);
    for (size_t at = 0; at < bytes - direct;) {
      const std::span<std::byte> next = decoder_.space();
      const size_t part = std::min(next.size(), bytes - direct - at);
      std::memcpy(next.data(), spare_.data() + at, part);
      at += part;
      consume(part, take);
    }
    if (bytes < space.size() && stream_.pending() == 0) return true;  // the socket is empty
  }
  return true;
}

WakeUp::WakeUp() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MX_CHECK(fd_, CommunicationError, "[kvstore] expected an event descriptor, got ", std::strerror(errno));
}

void WakeUp::signal() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

void WakeUp::clear() {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace mx::kv
