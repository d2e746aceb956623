#include "comm/rendezvous/client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "comm/net/bytes.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/limits.h"
#include "comm/rendezvous/protocol.h"
#include "comm/rendezvous/watches.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"

namespace mx::comm {
namespace {

constexpr int64_t kConnectAgainMs = 50;
constexpr int64_t kLastWordsMs = 1000, kCancelledMs = 1000;
// If the thread runs so much later than planned, the process was stopped, and the silence was its own.
constexpr int64_t kClientLateMs = 1000;
constexpr size_t kBacklogBytes = 1 << 20;  // heartbeats are not queued behind so much

Identity rendezvous_identity(Identity self) {
  self.purpose = kRendezvousPurpose;
  return self;
}

/// Connects and authenticates. A server that is just starting or ending may close a connection without a
/// word, and one whose machine is busy may not answer within the time limit of a handshake. Then it tries
/// again.
Stream connect_rendezvous(const RendezvousClientOptions& options, Deadline start) {
  const Endpoint endpoint = parse_endpoint(options.address);
  for (;;) {
    Stream stream = connect_to(endpoint, start);
    try {
      handshake_on(stream, Handshake::Side::connector, rendezvous_identity(options.self), start,
                   "rendezvous at " + options.address);
      return stream;
    } catch (const PeerLost&) {
      MX_CHECK(start.left_ms() > 2 * kConnectAgainMs, Timeout, current_exception_text(),
               " until the deadline");
    } catch (const Timeout&) {
      if (start.left_ms() <= 2 * kConnectAgainMs) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kConnectAgainMs));
  }
}

std::exception_ptr error_of(const Frame& frame) {
  const std::string text = "[rendezvous] " + frame.value;
  switch (static_cast<ErrorCode>(frame.number)) {
    case ErrorCode::invalid_argument:
      return std::make_exception_ptr(InvalidArgument(text));
    case ErrorCode::invalid_state:
      return std::make_exception_ptr(InvalidState(text));
    default:
      return std::make_exception_ptr(ProtocolError(text));
  }
}

}  // namespace

struct RendezvousClient::State {
  using Clock = Deadline::Clock;

  State(RendezvousClientOptions o, Deadline start)
      : options(std::move(o)),
        stream(connect_rendezvous(options, start)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    MX_CHECK(wake, CommunicationError, "[rendezvous] expected a descriptor for events, got ",
             std::strerror(errno));
    silence_ms = options.dead_after_ms > 0 ? std::max(options.dead_after_ms, 2 * options.heartbeat_ms) : 0;
  }

  /// Sends a request and returns the answer. Throws the failure of the connection, or an error that the
  /// server answered; returns nothing after the deadline.
  std::optional<Frame> ask(Frame frame, std::optional<Deadline> deadline) {
    return end(begin(std::move(frame)), deadline);
  }
  using Request = std::map<uint64_t, std::optional<Frame>>::iterator;
  Request begin(Frame frame);
  std::optional<Frame> end(Request request, std::optional<Deadline> deadline);
  void stop();
  /// Queues frames for the thread. Precondition: mutex is held.
  void queue(const Frame& frame) {
    encode(frame, out);
    const uint64_t one = 1;
    // It can only fail if the counter is full, and then the thread is woken anyway.
    [[maybe_unused]] const ssize_t n = write(wake.get(), &one, sizeof one);
  }
  void run();
  /// One turn of the thread; throws when the connection is lost.
  void turn();
  void receive();
  void send_some();
  void take(Frame frame);
  void fail(std::exception_ptr reason);
  template <class... Parts>
  [[noreturn]] void lose(const Parts&... parts) const {
    throw PeerLost(mx::detail::concat("[rendezvous] lost the rendezvous at ", options.address,
                                      options.run_by.empty() ? "" : ", which " + options.run_by + " runs",
                                      ": ", parts...));
  }

  const RendezvousClientOptions options;
  int64_t silence_ms = 0;
  Stream stream;  // of the thread, once it runs
  const Fd wake;
  std::atomic<int64_t> step{-1};
  Watches watches;

  mutable std::mutex mutex;  // guards the members below
  std::condition_variable answered;
  std::string out;
  uint64_t last_request = 0;
  std::map<uint64_t, std::optional<Frame>> requests;  // open ones, with the answer if it is here
  std::exception_ptr failure;
  bool stopped = false, parted = false;

  // Of the thread only.
  std::string sending;
  size_t sent = 0;
  FrameDecoder decoder;
  Clock::time_point heard = Clock::now(), next_beat = Clock::now();
  std::thread thread;
};

RendezvousClient::RendezvousClient(RendezvousClientOptions options, Deadline start) {
  MX_CHECK(options.heartbeat_ms > 0, InvalidArgument,
           "[rendezvous] expected a positive time between heartbeats, got ", options.heartbeat_ms, " ms");
  state_ = std::make_unique<State>(std::move(options), start);
  // Queued before the thread starts, so that no heartbeat is sent before it.
  const auto join =
      state_->begin({FrameKind::join, 0, state_->step.load(), state_->options.role, state_->options.host});
  // Now, because the thread below could only end when memory is short.
  state_->watches.start();
  state_->thread = start_thread("rendezvous", [state = state_.get()] {
    prefer_quick_wakeup();  // a late heartbeat looks like a lost process
    state->run();
  });
  try {
    MX_CHECK(state_->end(join, start), Timeout, "[rendezvous] expected the rendezvous at ",
             state_->options.address, " to answer until the deadline, got no answer");
  } catch (...) {
    state_->stop();
    throw;
  }
}

RendezvousClient::~RendezvousClient() { state_->stop(); }

void RendezvousClient::put(const std::string& key, const std::string& value) {
  check_entry(key, value);
  state_->ask({FrameKind::put, 0, 0, key, value}, std::nullopt);
}

void RendezvousClient::tell(const std::string& key, const std::string& value) {
  check_entry(key, value);
  state_->ask({FrameKind::tell, 0, 0, key, value}, std::nullopt);
}

std::string RendezvousClient::get(const std::string& key, Deadline deadline) {
  check_entry(key, {});
  std::optional<Frame> answer = state_->ask({FrameKind::get, 0, 0, key, {}}, deadline);
  MX_CHECK(answer && answer->kind == FrameKind::value, Timeout, "[rendezvous] expected an entry with key ",
           in_quotes(key), " until the deadline, got none (rendezvous at ", state_->options.address, ")");
  return std::move(answer->value);
}

uint64_t RendezvousClient::watch(const std::string& prefix, Changed changed) {
  MX_CHECK(prefix.size() <= kLongestKey, InvalidArgument, "[rendezvous] expected a prefix of at most ",
           kLongestKey, " bytes, got ", prefix.size());
  const std::lock_guard lock(state_->mutex);
  if (state_->failure) std::rethrow_exception(state_->failure);
  const uint64_t id = ++state_->last_request;
  state_->watches.add(id, prefix, std::move(changed));
  state_->queue({FrameKind::watch, id, 0, prefix, {}});
  return id;
}

void RendezvousClient::unwatch(uint64_t id) {
  state_->watches.remove(id);
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure)
    state_->queue({FrameKind::unwatch, ++state_->last_request, static_cast<int64_t>(id), {}, {}});
}

void RendezvousClient::set_step(int64_t step) { state_->step.store(step, std::memory_order_relaxed); }

void RendezvousClient::farewell() noexcept {
  try {
    state_->ask({FrameKind::farewell, 0, 0, {}, {}}, Deadline::after_ms(kLastWordsMs));
  } catch (const std::exception&) {
    // The connection is lost: nobody is left to part from.
  }
}

std::exception_ptr RendezvousClient::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

RendezvousClient::State::Request RendezvousClient::State::begin(Frame frame) {
  const std::lock_guard lock(mutex);
  if (failure) std::rethrow_exception(failure);
  MX_CHECK(!parted, InvalidState, "[rendezvous] expected no request after the farewell, got '",
           to_string(frame.kind), "'");
  // From here on the server may close the connection at any time, which is no failure then.
  if (frame.kind == FrameKind::farewell) parted = true;
  frame.request = ++last_request;
  queue(frame);
  return requests.emplace(frame.request, std::nullopt).first;
}

std::optional<Frame> RendezvousClient::State::end(Request request, std::optional<Deadline> deadline) {
  std::unique_lock lock(mutex);
  const auto ready = [&] { return request->second.has_value() || failure; };
  if (!deadline) {
    answered.wait(lock, ready);
  } else if (!answered.wait_until(lock, deadline->at(), ready)) {
    // The rendezvous answers that the request has ended. If the entry exists, its value arrives before that,
    // even if the deadline had passed from the beginning.
    queue({FrameKind::cancel, request->first, 0, {}, {}});
    answered.wait_for(lock, std::chrono::milliseconds(kCancelledMs), ready);
  }
  std::optional<Frame> answer = std::move(request->second);
  requests.erase(request);
  if (!answer && failure) std::rethrow_exception(failure);
  if (answer && answer->kind == FrameKind::error) std::rethrow_exception(error_of(*answer));
  return answer;
}

void RendezvousClient::State::stop() {
  {
    const std::lock_guard lock(mutex);
    stopped = true;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake.get(), &one, sizeof one);
  }
  if (thread.joinable()) thread.join();
  watches.stop();
}

void RendezvousClient::State::run() {
  try {
    for (;;) {
      {
        const std::lock_guard lock(mutex);
        if (stopped) return;
        sending += std::exchange(out, {});
      }
      turn();
    }
  } catch (const std::exception&) {
    fail(std::current_exception());
  }
}

void RendezvousClient::State::turn() {
  auto now = Clock::now();
  if (now >= next_beat) {
    if (sending.size() - sent < kBacklogBytes)
      encode({FrameKind::heartbeat, 0, step.load(std::memory_order_relaxed), {}, {}}, sending);
    next_beat = now + std::chrono::milliseconds(options.heartbeat_ms);
  }
  auto until = next_beat;
  if (silence_ms > 0) until = std::min(until, heard + std::chrono::milliseconds(silence_ms));
  const bool more = sent < sending.size();
  const short events = stream.events(static_cast<short>(more ? POLLIN | POLLOUT : POLLIN));
  pollfd entries[2] = {{stream.fd(), events, 0}, {wake.get(), POLLIN, 0}};
  const int n = poll(entries, 2, Deadline(until).poll_ms());
  now = Clock::now();
  if (now > until + std::chrono::milliseconds(kClientLateMs)) heard = now;
  if (n < 0) {
    if (errno != EINTR && errno != EAGAIN) lose("cannot wait: ", std::strerror(errno));
    return;
  }
  if (entries[1].revents != 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(wake.get(), &count, sizeof count);
  }
  if (more && (entries[0].revents & stream.events(POLLOUT)) != 0) send_some();
  if ((entries[0].revents & (POLLIN | POLLERR | POLLHUP)) != 0) receive();
  if (silence_ms > 0 && now - heard >= std::chrono::milliseconds(silence_ms))
    lose("no answer to heartbeats for ", silence_ms, " ms");
}

void RendezvousClient::State::send_some() {
  const ssize_t n = stream.send(sending.data() + sent, sending.size() - sent);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
    // What the server said before it closed tells more than the error, so receive() reports the end.
    if (errno == EPIPE || errno == ECONNRESET) return receive();
    lose(stream.text_of(errno));
  }
  sent += static_cast<size_t>(n);
  if (sent == sending.size()) {
    sending.clear();
    sent = 0;
  }
}

void RendezvousClient::State::receive() {
  std::array<std::byte, 16 * 1024> buffer;
  do {
    const ssize_t n = stream.receive(buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (n < 0) lose(stream.text_of(errno));
    if (n == 0) lose("it closed the connection");
    heard = Clock::now();
    decoder.receive(std::span(buffer).first(static_cast<size_t>(n)));
    while (std::optional<Frame> frame = decoder.next()) take(std::move(*frame));
  } while (stream.pending() > 0);
}

void RendezvousClient::State::take(Frame frame) {
  switch (frame.kind) {
    case FrameKind::heartbeat:
      return;
    case FrameKind::changed:
      return watches.post(frame.request, std::move(frame.key), std::move(frame.value));
    case FrameKind::error:
      if (frame.request == 0) lose("it ", frame.value);
      [[fallthrough]];
    case FrameKind::done:
    case FrameKind::value: {
      const std::lock_guard lock(mutex);
      // An answer may arrive after its request was given up.
      if (const auto found = requests.find(frame.request); found != requests.end()) {
        found->second = std::move(frame);
        answered.notify_all();
      }
      return;
    }
    default:
      lose("it sent the frame '", to_string(frame.kind), "' of a client");
  }
}

void RendezvousClient::State::fail(std::exception_ptr reason) {
  bool expected;
  {
    const std::lock_guard lock(mutex);
    failure = reason;
    expected = stopped || parted;
    answered.notify_all();
  }
  if (expected || !options.on_broken) return;
  try {
    watches.post([this, reason] { options.on_broken(reason); });
  } catch (const std::exception&) {
    // Without memory for that, calls of the client still throw the reason.
  }
}

}  // namespace mx::comm
