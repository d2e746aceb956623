#include "comm/tcp/tcp_transport.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "comm/check_rank.h"
#include "engine/base/check.h"
#include "engine/base/cpus.h"

namespace mx::comm {

namespace {

constexpr int kGatheredMessages = 16;
// If a yield took this long, the next waits sleep at once: a thread that sleeps in poll() is scheduled as
// soon as its message arrives; a thread that yields is scheduled only after all other runnable threads.
constexpr std::chrono::microseconds kLongYield{300};
constexpr int kCrowdedWaits = 256;
// How often the rings are polled between two polls of the sockets. Polling a socket costs a system call;
// polling a ring does not.
constexpr int kLooksAtRings = 50;

std::string tcp_error_text(int error) { return std::strerror(error); }

std::string transferred_bytes(const MessageQueue& queue) {
  return std::to_string(queue.front_done()) + " of " + std::to_string(queue.front_bytes()) + " bytes";
}

}  // namespace

TcpTransport::TcpTransport(int rank, std::vector<TcpPeer> peers, TcpOptions options)
    : rank_(rank), options_(std::move(options)) {
  peers_.resize(peers.size());
  for (size_t i = 0; i < peers.size(); ++i) {
    peers_[i].stream = std::move(peers[i].stream);
    peers_[i].host = std::move(peers[i].host);
    peers_[i].machine = std::move(peers[i].machine);
  }
  check_rank("tcp", rank, size());
  for (int i = 0; i < size(); ++i) {
    if (i == rank) continue;
    const int fd = peers_[static_cast<size_t>(i)].stream.fd();
    MX_CHECK(fd >= 0, InvalidArgument, "[tcp] expected a connection to rank ", i, ", got none");
    const int flags = ::fcntl(fd, F_GETFL);
    MX_CHECK(flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0, CommunicationError,
             "[tcp] expected a socket to rank ", i, ", got ", tcp_error_text(errno));
    // Without this, the kernel holds a small message back until the one before it has been acknowledged.
    // Not every stream socket has the option (tests use socket pairs), therefore a failure is ignored.
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  MX_CHECK(wake_, CommunicationError, "[tcp] expected a new eventfd, got ", tcp_error_text(errno));
  polled_.reserve(peers_.size() + 2);
}

void TcpTransport::share_memory(std::unique_ptr<shm::Rings> rings, const std::vector<int>& members) {
  type_ = "shm+tcp";
  rings_ = std::move(rings);
  if (rings_ == nullptr) return;
  for (int member = 0; member < rings_->size(); ++member)
    if (member != rings_->rank())
      peers_[static_cast<size_t>(members[static_cast<size_t>(member)])].member = member;
  polls_rings_ = !rings_->crowded();
}

std::string TcpTransport::machine(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return peer.machine.empty() ? peer.host : peer.machine;
}

std::string TcpTransport::host(int rank) const {
  check_rank("host", rank, size());
  return peers_[static_cast<size_t>(rank)].host;
}

TcpTransport::Peer& TcpTransport::other(int peer, const char* call) {
  MX_CHECK(peer >= 0 && peer < size() && peer != rank_, InvalidArgument, "[", call,
           "] expected another rank among 0..", size() - 1, ", got ", peer, " on rank ", rank_);
  throw_if_aborted();
  return peers_[static_cast<size_t>(peer)];
}

void TcpTransport::post_send(int peer, const void* data, size_t bytes) {
  // iovec has no const form; the bytes are only read.
  other(peer, "post_send").sends.add(static_cast<std::byte*>(const_cast<void*>(data)), bytes);
}

void TcpTransport::post_receive(int peer, void* data, size_t bytes) {
  other(peer, "post_receive").receives.add(static_cast<std::byte*>(data), bytes);
}

void TcpTransport::await_receive(int peer, Deadline deadline) {
  Peer& from = other(peer, "await_receive");
  MX_CHECK(from.awaited < from.receives.added(), InvalidState,
           "[await_receive] expected a message that was posted for receiving from rank ", peer, ", got none");
  run_until([&] { return from.awaited < from.receives.completed(); }, deadline);
  ++from.awaited;
}

size_t TcpTransport::await_first(const std::vector<int>& peers, Deadline deadline) {
  for (const int peer : peers) {
    const Peer& from = other(peer, "await_first");
    MX_CHECK(from.awaited < from.receives.added(), InvalidState,
             "[await_first] expected a message that was posted for receiving from rank ", peer, ", got none");
  }
  size_t first = 0;
  run_until(
      [&] {
        for (first = 0; first < peers.size(); ++first)
          if (arrived(peers[first]) > 0) return true;
        return false;
      },
      deadline);
  ++peers_[static_cast<size_t>(peers[first])].awaited;
  return first;
}

uint64_t TcpTransport::arrived(int peer) const {
  const Peer& from = peers_[static_cast<size_t>(peer)];
  return from.receives.completed() - from.awaited;
}

void TcpTransport::finish(Deadline deadline) {
  throw_if_aborted();
  run_until(
      [&] {
        return std::all_of(peers_.begin(), peers_.end(),
                           [](const Peer& peer) { return peer.sends.empty() && peer.receives.empty(); });
      },
      deadline);
  for (Peer& peer : peers_) peer.awaited = peer.receives.completed();
}

// Skips peers whose connection is broken: the call has failed already, and its own error is the one to
// report.
void TcpTransport::flush(Deadline deadline) noexcept {
  while (!aborted_.load(std::memory_order_acquire)) {
    polled_.clear();  // it has room for all
    polled_.push_back({wake_.get(), POLLIN, 0});
    bool waits = true, complete = true;
    for (Peer& peer : peers_) {
      if (peer.sends.empty() || try_send(peer) < 0 || peer.sends.empty()) continue;
      complete = false;
      waits &= watch(peer, true, false);
    }
    if (rings_) polled_.push_back({rings_->bell(), POLLIN, 0});
    const bool over = complete || deadline.passed();
    const int ready = over || !waits ? 0 : ::poll(polled_.data(), polled_.size(), deadline.poll_ms());
    const bool failed = ready < 0 && errno != EINTR;
    if (ready > 0) note_ended();
    if (rings_) rings_->awake();
    if (over || failed) return;
  }
}

template <class Done>
void TcpTransport::run_until(Done done, Deadline deadline) {
  progress();
  if (done()) return;
  using Clock = std::chrono::steady_clock;
  auto spin = std::chrono::microseconds(options_.spin_us);
  if (crowded_waits_ > 0) {
    --crowded_waits_;
    spin = {};
  }
  auto sleep_at = Clock::now() + spin;
  for (;;) {
    throw_if_aborted();
    if (progress()) {
      if (done()) return;
      sleep_at = Clock::now() + spin;
      // A long transfer may progress for ever without sleeping, so its deadline is checked here, too.
      if (deadline.passed()) time_out();
    } else if (polls_rings_ && spin.count() > 0 && look_at_rings()) {
      continue;
    } else if (const auto now = Clock::now(); now >= sleep_at) {
      sleep(deadline);
    } else {
      ::sched_yield();
      if (Clock::now() - now > kLongYield) crowded_waits_ = kCrowdedWaits;
    }
  }
}

bool TcpTransport::progress() {
  bool any = false;
  for (int i = 0; i < size(); ++i) {
    Peer& peer = peers_[static_cast<size_t>(i)];
    if (!peer.sends.empty()) any |= send_some(i, peer);
    if (!peer.receives.empty()) any |= receive_some(i, peer);
  }
  return any;
}

ssize_t TcpTransport::try_send(Peer& peer) noexcept {
  iovec parts[kGatheredMessages];
  size_t total = 0;
  const int count = peer.sends.gather(parts, kGatheredMessages, options_.most_bytes_per_call, total);
  if (peer.member >= 0) {
    const size_t written = rings_->write(peer.member, parts, count);
    peer.sends.advance(written);
    if (written > 0 || !peer.ended) return static_cast<ssize_t>(written);
    errno = EPIPE;
    return -1;
  }
  const ssize_t sent = peer.stream.send(parts, static_cast<size_t>(count));
  if (sent < 0) {
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS;
    return later ? 0 : -1;
  }
  peer.sends.advance(static_cast<size_t>(sent));
  return sent;
}

bool TcpTransport::send_some(int rank, Peer& peer) {
  // If a rank has ended, data that it wrote before may still be in its ring or socket. That data counts, so
  // it is read first.
  if ((peer.ended || !peer.broken.empty()) && !peer.receives.empty()) return false;
  const ssize_t sent = try_send(peer);
  if (sent >= 0) return sent > 0;
  if (peer.broken.empty()) peer.broken = peer.stream.text_of(errno);
  if (peer.member >= 0 || peer.receives.empty()) lose(rank, peer.broken);
  return false;
}

bool TcpTransport::read_ring(int rank, Peer& peer) {
  const bool ended = peer.ended;  // read before the ring: then the ring has all that the rank wrote
  iovec parts[kGatheredMessages];
  size_t total = 0, received = 0;
  const int count = peer.receives.gather(parts, kGatheredMessages, options_.most_bytes_per_call, total);
  try {
    received = rings_->read(peer.member, parts, count);
  } catch (const ProtocolError& error) {
    fail(error);
  }
  if (received == 0 && ended) lose(rank, "it closed the connection");
  peer.receives.advance(received);
  return received > 0;
}

bool TcpTransport::receive_some(int rank, Peer& peer) {
  if (peer.member >= 0) return read_ring(rank, peer);
  iovec parts[kGatheredMessages];
  size_t total = 0;
  const auto count = static_cast<size_t>(
      peer.receives.gather(parts, kGatheredMessages, options_.most_bytes_per_call, total));
  const ssize_t received = peer.stream.receive(parts, count);
  if (received <= 0 && !peer.broken.empty()) lose(rank, peer.broken);
  if (received == 0) lose(rank, "it closed the connection");
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    lose(rank, peer.stream.text_of(errno));
  }
  peer.receives.advance(static_cast<size_t>(received));
  return true;
}

bool TcpTransport::look_at_rings() const {
  for (int look = 0; look < kLooksAtRings; ++look) {
    for (const Peer& peer : peers_) {
      if (peer.member < 0) continue;
      if (!peer.receives.empty() && rings_->is_readable(peer.member)) return true;
      if (!peer.sends.empty() && rings_->is_writable(peer.member)) return true;
    }
    cpu_relax();
  }
  return false;
}

bool TcpTransport::watch(Peer& peer, bool sends, bool receives) {
  // A connection without anything posted is left out: poll() would report its end again and again.
  if (!sends && !receives) return true;
  if (peer.member < 0) {
    const auto wanted = static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
    polled_.push_back({peer.stream.fd(), peer.stream.events(wanted), 0});
    return true;
  }
  polled_.push_back({peer.stream.fd(), POLLIN, 0});  // its end
  bool waits = true;
  if (receives) waits &= rings_->sleep_until_readable(peer.member);
  if (sends) waits &= rings_->sleep_until_writable(peer.member);
  return waits;
}

// The connections of members carry nothing, so all that poll() can find is their end.
void TcpTransport::note_ended() {
  for (const pollfd& found : polled_) {
    if (found.revents == 0) continue;
    for (Peer& peer : peers_)
      if (peer.member >= 0 && peer.stream.fd() == found.fd) peer.ended = true;
  }
}

void TcpTransport::sleep(Deadline deadline) {
  polled_.clear();
  polled_.push_back({wake_.get(), POLLIN, 0});
  bool waits = true;
  for (Peer& peer : peers_) waits &= watch(peer, !peer.sends.empty(), !peer.receives.empty());
  if (rings_) polled_.push_back({rings_->bell(), POLLIN, 0});
  int ready = waits ? 0 : 1, error = 0;
  while (ready == 0) {
    const int left_ms = deadline.poll_ms();
    if (left_ms == 0) break;
    ready = ::poll(polled_.data(), polled_.size(), left_ms);
    error = errno;
    if (ready < 0 && error == EINTR) ready = 0;
  }
  if (rings_) {
    if (waits && ready > 0) note_ended();
    rings_->awake();
  }
  if (ready == 0) time_out();
  MX_CHECK(ready > 0, CommunicationError, "[tcp] expected poll() to wait, got ", tcp_error_text(error));
}

void TcpTransport::abort(std::exception_ptr reason) {
  {
    std::lock_guard lock(mutex_);
    if (reason_) return;
    reason_ = std::move(reason);
    aborted_.store(true, std::memory_order_release);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void TcpTransport::leave() noexcept {
  for (Peer& peer : peers_)
    if (peer.stream.fd() >= 0) peer.stream.shut_down();
}

void TcpTransport::throw_if_aborted() const {
  if (!aborted_.load(std::memory_order_acquire)) [[likely]]
    return;
  std::exception_ptr reason;
  {
    std::lock_guard lock(mutex_);
    reason = reason_;
  }
  std::rethrow_exception(reason);
}

template <class Error>
void TcpTransport::fail(const Error& error) {
  abort(std::make_exception_ptr(error));
  throw_if_aborted();
  throw error;  // not reached
}

void TcpTransport::receive_rest(int lost) {
  if (std::exchange(losing_, true)) return;  // the loss of a second rank, found while this function reads
  for (int i = 0; i < size(); ++i) {
    Peer& peer = peers_[static_cast<size_t>(i)];
    if (i == lost || peer.receives.empty()) continue;
    try {
      while (!peer.receives.empty() && receive_some(i, peer)) {
      }
    } catch (const Error&) {  // the first loss is the one to report
    }
  }
}

void TcpTransport::lose(int peer, const std::string& why) {
  if (losing_) throw PeerLost(why);  // receive_rest() ignores it
  receive_rest(peer);
  const std::string cause = options_.explain_loss ? options_.explain_loss(peer) : std::string();
  throw_if_aborted();  // while the cause was looked for, somebody may have found it
  if (!cause.empty()) fail(PeerLost(cause));
  fail(PeerLost(mx::detail::concat("[", type_, "] expected rank ", peer, " on ", host(peer),
                                   " to stay connected to rank ", rank_, ", got a lost connection: ", why,
                                   others_closed(peer))));
}

std::string TcpTransport::others_closed(int except) const {
  std::string text;
  for (int i = 0; i < size(); ++i) {
    if (i == except || i == rank_) continue;
    pollfd look{peers_[static_cast<size_t>(i)].stream.fd(), POLLRDHUP, 0};
    if (::poll(&look, 1, 0) <= 0) continue;
    text += mx::detail::concat(text.empty() ? "; closed, too: rank " : ", rank ", i, " on ", host(i));
  }
  return text;
}

int TcpTransport::silent_rank() const {
  int found = -1;
  for (int i = 0; i < size(); ++i) {
    const MessageQueue& receives = peers_[static_cast<size_t>(i)].receives;
    if (receives.empty()) continue;
    if (receives.front_done() == 0) return i;
    if (found < 0) found = i;
  }
  return found;
}

void TcpTransport::time_out() {
  std::string missing;
  for (int i = 0; i < size(); ++i) {
    const Peer& peer = peers_[static_cast<size_t>(i)];
    if (!peer.receives.empty())
      missing += mx::detail::concat(missing.empty() ? "" : ", ", "rank ", i, " on ", peer.host, " (",
                                    transferred_bytes(peer.receives), " received)");
    else if (!peer.sends.empty())
      missing += mx::detail::concat(missing.empty() ? "" : ", ", "rank ", i, " on ", peer.host, " (",
                                    transferred_bytes(peer.sends), " of a message to it sent)");
  }
  const int silent = silent_rank();
  if (options_.noticed_timeout && silent >= 0) options_.noticed_timeout(silent);
  fail(Timeout(mx::detail::concat("[", type_,
                                  "] expected messages before the deadline, got none in time on rank ", rank_,
                                  " from ", missing)));
}

}  // namespace mx::comm
