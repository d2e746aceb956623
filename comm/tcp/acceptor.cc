#include "comm/tcp/acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "comm/net/shortage.h"
#include "engine/base/check.h"
#include "engine/base/threads.h"

namespace mx::comm {

namespace {

/// Unauthenticated connections at a time, beyond the number of ranks. A further one ends the oldest.
constexpr size_t kMostGuests = 256;
constexpr int64_t kCheckEveryMs = 100;

}  // namespace

/// A connection whose handshake is running.
struct TcpAcceptor::Guest {
  Guest(Fd fd, const Identity& self, Deadline until)
      : stream(std::move(fd)),
        handshake(Handshake::Side::acceptor, self, random_nonce()),
        deadline(until),
        from(peer_of(stream.fd())) {
    stream.secure(Handshake::Side::acceptor, self);
    handshake.start();
  }

  Stream stream;
  Handshake handshake;
  Deadline deadline;
  std::string from;
  bool over = false;
};

TcpAcceptor::TcpAcceptor(Listener listener, Identity self, int first, int last, Deadline deadline,
                         std::function<void()> check)
    : listener_(std::move(listener)),
      self_(std::move(self)),
      first_(first),
      last_(last),
      deadline_(deadline),
      check_(std::move(check)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MX_CHECK(wake_, CommunicationError, "[tcp] expected a new eventfd, got ", std::strerror(errno));
  if (first <= last) thread_ = start_thread("comm", [this] { thread_main(); });
}

TcpAcceptor::~TcpAcceptor() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void TcpAcceptor::wait() {
  if (thread_.joinable()) thread_.join();
  std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

std::map<int, Stream> TcpAcceptor::take() {
  std::lock_guard lock(mutex_);
  return std::move(ranks_);
}

std::string TcpAcceptor::last_refusal() const {
  std::lock_guard lock(mutex_);
  return refusal_;
}

void TcpAcceptor::refuse(const Guest& guest, const std::string& why) {
  std::lock_guard lock(mutex_);
  refusal_ = "connection from " + guest.from + ": " + why;
}

void TcpAcceptor::serve(Guest& guest) {
  std::array<std::byte, Handshake::kMessageBytes> bytes;
  while (!guest.over) {
    const size_t wanted = std::min(guest.handshake.wanted(), bytes.size());
    const ssize_t got = guest.stream.receive(bytes.data(), wanted);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    Handshake::Actions next = got > 0
                                  ? guest.handshake.receive(std::span(bytes.data(), static_cast<size_t>(got)),
                                                            guest.stream.binding())
                                  : guest.handshake.closed();
    if (got < 0 && guest.stream.failure()) next.failure = guest.stream.failure();
    // The messages of a handshake always fit into an empty socket buffer. A connection that takes less is
    // treated like a broken one.
    bool sent = true;
    if (!next.send.empty())
      sent = guest.stream.send(next.send.data(), next.send.size()) == static_cast<ssize_t>(next.send.size());
    if (next.failure || !sent) {
      guest.over = true;
      try {
        if (next.failure) std::rethrow_exception(next.failure);
        refuse(guest, "it takes no bytes");
      } catch (const std::exception& error) {
        refuse(guest, error.what());
      }
    } else if (next.done) {
      guest.over = true;
      const int rank = guest.handshake.remote().rank;
      if (rank < first_ || rank > last_) {
        refuse(guest, "it has rank " + std::to_string(rank));
        continue;
      }
      std::lock_guard lock(mutex_);
      ranks_[rank] = std::move(guest.stream);
    }
  }
}

// A rank that has closed the connection without a word has ended, or makes another one. If it sent something
// before it closed, it had finished the handshake, and what it sent still counts.
bool TcpAcceptor::complete() {
  const size_t expected = static_cast<size_t>(last_ - first_ + 1);
  std::lock_guard lock(mutex_);
  if (ranks_.size() < expected) return false;
  for (auto rank = ranks_.begin(); rank != ranks_.end();)
    rank = rank->second.ended() ? ranks_.erase(rank) : std::next(rank);
  return ranks_.size() == expected;
}

void TcpAcceptor::thread_main() try {
  const size_t expected = static_cast<size_t>(last_ - first_ + 1);
  std::list<Guest> guests;
  std::vector<pollfd> polled;
  Shortage shortage;
  for (;;) {
    if (complete()) return;
    if (check_) check_();
    Deadline next = check_ ? earlier(deadline_, Deadline::after_ms(kCheckEveryMs)) : deadline_;
    polled.assign({{wake_.get(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}});
    for (const Guest& guest : guests) {
      polled.push_back({guest.stream.fd(), guest.stream.events(POLLIN), 0});
      next = earlier(next, guest.deadline);
    }
    const int ready = ::poll(polled.data(), polled.size(), next.poll_ms());
    MX_CHECK(ready >= 0 || errno == EINTR, CommunicationError, "[tcp] expected poll() to wait, got ",
             std::strerror(errno));
    if (deadline_.passed() || (ready > 0 && polled[0].revents != 0)) return;
    size_t place = 2;
    for (Guest& guest : guests) {
      if (ready > 0 && polled[place].revents != 0) serve(guest);
      if (!guest.over && guest.deadline.passed()) {
        guest.over = true;
        refuse(guest, "it did not finish the handshake in time");
      }
      ++place;
    }
    guests.remove_if([](const Guest& guest) { return guest.over; });
    if (ready > 0 && polled[1].revents != 0) {
      const int fd = ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      // An error belongs to the connection, which is gone. Without descriptors the connection stays, so the
      // loop would spin: the oldest guest leaves, or else the thread waits a little.
      const int problem = errno;
      const bool missing = fd < 0 && out_of_descriptors(problem);
      if (missing && !guests.empty()) {
        guests.pop_front();
      } else {
        MX_CHECK(!shortage.lasts(missing), CommunicationError,
                 "[tcp] expected a descriptor for the connection of a rank, got ", std::strerror(problem),
                 " (ulimit -n)");
        if (missing) std::this_thread::sleep_for(std::chrono::milliseconds(kAcceptAgainMs));
      }
      if (fd >= 0) {
        Fd socket(fd);
        prepare_socket(fd);
        if (guests.size() >= kMostGuests + expected) guests.pop_front();
        guests.emplace_back(std::move(socket), self_,
                            earlier(deadline_, Deadline::after_ms(kHandshakeTimeoutMs)));
      }
    }
  }
} catch (...) {
  std::lock_guard lock(mutex_);
  failure_ = std::current_exception();
}

}  // namespace mx::comm
