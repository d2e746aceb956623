#include "comm/rendezvous/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "comm/net/bytes.h"
#include "comm/net/socket.h"
#include "comm/net/tls_session.h"
#include "comm/rendezvous/client.h"
#include "comm/rendezvous/machine.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"

namespace mx::comm {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using std::chrono::milliseconds;

constexpr int64_t kDrainMs = 1000;        // how long the last message may take to reach a client
constexpr int64_t kRecoverMs = 100;       // after the process ran out of descriptors or memory
constexpr int64_t kLongestTickMs = 1000;  // between two looks at the clients
constexpr int64_t kServerLateMs = 500;    // a tick that is so late means that this process was stopped

int64_t steady_ms() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// The members are used by the server's thread only, except where they say so.
struct RendezvousServer::State {
  enum class Phase : uint8_t { handshake, open, draining };

  struct Session {
    Session(asio::io_context& io, uint64_t number, const Identity& self)
        : id(number), socket(io), timer(io), handshake(Handshake::Side::acceptor, self, random_nonce()) {}

    const uint64_t id;
    tcp::socket socket;
    std::unique_ptr<TlsSession> tls;  // of the socket; null in clear text
    asio::steady_timer timer;         // the end of the handshake, or of draining
    Phase phase = Phase::handshake;
    Handshake handshake;
    FrameDecoder decoder;
    std::array<std::byte, 8 * 1024> in;
    std::string sending, next;  // being written, and to be written then
    size_t sent = 0;            // bytes of `sending`, with TLS
    bool writing = false;
  };
  using SessionPtr = std::shared_ptr<Session>;

  explicit State(RendezvousServerOptions o);

  /// The server's thread. An error, such as a lack of memory, must not end the process, because all processes
  /// of a job depend on it.
  void run() noexcept;
  /// Does something for one connection. An error ends that connection only.
  template <class F>
  void guard(const SessionPtr& session, F&& f) noexcept;
  void note_error() noexcept;
  void accept_next();
  void accept_all();
  void admit(Fd socket);
  void read(const SessionPtr& session);
  /// Waits until the socket is ready for what TLS needs next, of POLLIN and POLLOUT, and then calls `next`.
  void wait_tls(const SessionPtr& session, short events, void (State::*next)(const SessionPtr&));
  void read_tls(const SessionPtr& session);
  void write_tls(const SessionPtr& session);
  void take(const SessionPtr& session, std::span<const std::byte> bytes);
  void take_handshake(const SessionPtr& session, std::span<const std::byte> bytes);
  void write(const SessionPtr& session);
  /// Sends what is queued and then ends the connection.
  void drain(const SessionPtr& session);
  /// Ends the connection at once.
  void drop(const SessionPtr& session);
  /// The connection is at its end; tells the machine.
  void ended(const SessionPtr& session, const std::string& reason);
  /// Does what the machine asks for.
  void perform();
  void schedule_tick();

  const RendezvousServerOptions options;
  Identity self;
  Listener listener;
  std::string address;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer tick_timer{io}, accept_timer{io};
  RendezvousMachine machine;
  std::map<uint64_t, SessionPtr> sessions;
  std::set<uint64_t> handshakes;  // of sessions, oldest first
  uint64_t last_session = 0;
  // Read by counts() on any thread.
  std::atomic<size_t> connections{0}, open_handshakes{0};
  std::atomic<uint64_t> refused{0}, broken_protocol{0}, lost{0};
  std::thread thread;
};

RendezvousServer::State::State(RendezvousServerOptions o)
    : options(std::move(o)),
      self(options.self),
      listener(listen_at(options.address, options.port, options.backlog)),
      address(to_string(listener.at)),
      machine({.dead_after_ms = options.dead_after_ms}) {
  self.purpose = kRendezvousPurpose;
  self.rank = -1;
  if (self.epoch != kAnyEpoch) machine.set_epoch(self.epoch);
  acceptor.assign(listener.at.host.find(':') == std::string::npos ? tcp::v4() : tcp::v6(),
                  listener.socket.get());
  static_cast<void>(listener.socket.release());  // only now: assign() takes nothing if it throws
  acceptor.native_non_blocking(true);
  accept_next();
  schedule_tick();
}

RendezvousServer::RendezvousServer(RendezvousServerOptions options) {
  MX_CHECK(options.dead_after_ms > 0 && options.handshake_timeout_ms > 0, InvalidArgument,
           "[rendezvous] expected positive times, got dead_after ", options.dead_after_ms,
           " ms and handshake ", options.handshake_timeout_ms, " ms");
  state_ = std::make_unique<State>(std::move(options));
  state_->thread = start_thread("rendezvous", [state = state_.get()] { state->run(); });
}

RendezvousServer::~RendezvousServer() {
  state_->io.stop();
  state_->thread.join();
}

const std::string& RendezvousServer::address() const { return state_->address; }

void RendezvousServer::set_epoch(int64_t epoch) {
  // Waits, so that a process that is started after this call meets the new epoch.
  std::promise<void> done;
  asio::post(state_->io, [&] {
    try {
      state_->self.epoch = epoch;
      if (epoch != kAnyEpoch) state_->machine.set_epoch(epoch);
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

int64_t RendezvousServer::step_of(int64_t epoch, const ProcessName& process) const {
  std::promise<int64_t> step;
  asio::post(state_->io, [&] {
    try {
      step.set_value(state_->machine.step_of(epoch, process));
    } catch (...) {
      step.set_exception(std::current_exception());
    }
  });
  return step.get_future().get();
}

RendezvousServer::Counts RendezvousServer::counts() const {
  return {state_->connections, state_->open_handshakes, state_->refused, state_->broken_protocol,
          state_->lost};
}

// --- errors of the server itself ---

void RendezvousServer::State::run() noexcept {
  for (bool failed = false; !io.stopped();) {
    try {
      if (failed) {
        // The error may have ended the waits that go on for ever.
        std::this_thread::sleep_for(milliseconds(kRecoverMs));
        acceptor.cancel();
        accept_timer.cancel();
        accept_next();
        schedule_tick();
      }
      failed = false;
      io.run();
      return;
    } catch (...) {
      note_error();
      failed = true;
    }
  }
}

template <class F>
void RendezvousServer::State::guard(const SessionPtr& session, F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    note_error();
  }
  try {
    ended(session, "the rendezvous failed while it served this process");
  } catch (...) {
    note_error();
  }
}

void RendezvousServer::State::note_error() noexcept {
  try {
    log(LogLevel::error, mx::detail::concat("[rendezvous] an error of the server at ", address, ": ",
                                            current_exception_text()));
  } catch (...) {  // there is not even memory for the message
  }
}

// --- accepting ---

void RendezvousServer::State::accept_next() {
  acceptor.async_wait(tcp::acceptor::wait_read, [this](error_code error) {
    if (!error) accept_all();
  });
}

void RendezvousServer::State::accept_all() {
  for (;;) {
    // Not the accept of Asio, because that sets close-on-exec later: a process started in between would hold
    // the connection open.
    Fd socket(accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      try {
        prepare_socket(socket.get());
        admit(std::move(socket));
      } catch (...) {
        note_error();  // the connection is closed
      }
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return accept_next();
    // No descriptor or memory is left. The connection waits in the backlog until others have ended.
    log(LogLevel::warning,
        mx::detail::concat("[rendezvous] cannot accept at ", address, ": ", std::strerror(errno)));
    accept_timer.expires_after(milliseconds(kRecoverMs));
    accept_timer.async_wait([this](error_code error) {
      if (!error) accept_next();
    });
    return;
  }
}

void RendezvousServer::State::admit(Fd socket) {
  if (handshakes.size() >= options.max_handshakes) {
    // Honest clients finish in milliseconds, so the oldest is the least likely to be one.
    const SessionPtr oldest = sessions.at(*handshakes.begin());
    ++refused;
    drop(oldest);
  }
  const auto session = std::make_shared<Session>(io, ++last_session, self);
  error_code error;
  session->socket.assign(listener.at.host.find(':') == std::string::npos ? tcp::v4() : tcp::v6(),
                         socket.get(), error);
  if (error) return;  // the descriptor is still that of `socket`, which closes it
  static_cast<void>(socket.release());
  sessions[session->id] = session;
  handshakes.insert(session->id);
  open_handshakes = handshakes.size();
  guard(session, [&] {
    if (self.tls)
      session->tls =
          std::make_unique<TlsSession>(session->socket.native_handle(), Handshake::Side::acceptor, self);
    session->handshake.start();
    session->timer.expires_after(milliseconds(options.handshake_timeout_ms));
    session->timer.async_wait([this, session](error_code e) {
      if (e || session->phase != Phase::handshake) return;
      ++refused;
      drop(session);
    });
    read(session);
  });
}

// --- one connection ---

void RendezvousServer::State::read(const SessionPtr& session) {
  if (session->tls) return wait_tls(session, session->tls->events(POLLIN), &State::read_tls);
  const size_t most = session->phase == Phase::handshake
                          ? std::min(session->handshake.wanted(), session->in.size())
                          : session->in.size();
  session->socket.async_read_some(
      asio::buffer(session->in.data(), most), [this, session](error_code error, size_t bytes) {
        if (!sessions.contains(session->id)) return;
        guard(session, [&] {
          if (error)
            return ended(session, error == asio::error::eof ? "its connection ended without a farewell"
                                                            : "its connection broke: " + error.message());
          take(session, std::span(session->in).first(bytes));
          if (sessions.contains(session->id)) read(session);
        });
      });
}

void RendezvousServer::State::wait_tls(const SessionPtr& session, short events,
                                       void (State::*next)(const SessionPtr&)) {
  session->socket.async_wait((events & POLLOUT) != 0 ? tcp::socket::wait_write : tcp::socket::wait_read,
                             [this, session, next](error_code error) {
                               // An error is also one of the next call, which knows more.
                               if (error == asio::error::operation_aborted) return;
                               if (sessions.contains(session->id))
                                 guard(session, [&] { (this->*next)(session); });
                             });
}

void RendezvousServer::State::read_tls(const SessionPtr& session) {
  do {
    iovec part{session->in.data(), session->phase == Phase::handshake
                                       ? std::min(session->handshake.wanted(), session->in.size())
                                       : session->in.size()};
    const ssize_t got = session->tls->receive(&part, 1);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) break;
    if (got == 0) return ended(session, "its connection ended without a farewell");
    if (got < 0)
      return ended(session, mx::detail::concat("its connection broke: ", session->tls->failure()
                                                                             ? session->tls->failure_text()
                                                                             : std::strerror(errno)));
    take(session, std::span(session->in).first(static_cast<size_t>(got)));
    if (!sessions.contains(session->id)) return;
  } while (session->tls->pending() > 0);
  read(session);
}

void RendezvousServer::State::take(const SessionPtr& session, std::span<const std::byte> bytes) {
  if (session->phase == Phase::handshake) return take_handshake(session, bytes);
  if (session->phase == Phase::draining) return;  // what a refused client still says
  try {
    session->decoder.receive(bytes);
  } catch (const ProtocolError& e) {
    ++broken_protocol;
    encode({FrameKind::error, 0, static_cast<int64_t>(ErrorCode::protocol), {}, e.what()}, session->next);
    drain(session);
    machine.disconnect(session->id, std::string("broke the protocol: ") + e.what());
    return perform();
  }
  while (std::optional<Frame> frame = session->decoder.next())
    machine.receive(session->id, std::move(*frame), steady_ms());
  perform();
}

void RendezvousServer::State::take_handshake(const SessionPtr& session, std::span<const std::byte> bytes) {
  const Handshake::Actions actions =
      session->handshake.receive(bytes, session->tls ? session->tls->binding() : std::string_view());
  session->next += actions.send;
  if (actions.failure) {
    ++refused;
    return actions.send.empty() ? drop(session) : drain(session);
  }
  if (actions.done) {
    handshakes.erase(session->id);
    open_handshakes = handshakes.size();
    session->timer.cancel();
    if (connections >= options.max_connections) {
      ++refused;
      encode({FrameKind::error,
              0,
              static_cast<int64_t>(ErrorCode::invalid_state),
              {},
              mx::detail::concat("has no room for more than ", options.max_connections, " connections")},
             session->next);
      return drain(session);
    }
    session->phase = Phase::open;
    ++connections;
    machine.connect(session->id, session->handshake.remote(), steady_ms());
  }
  write(session);
}

void RendezvousServer::State::write(const SessionPtr& session) {
  if (session->writing) return;
  if (session->next.empty()) {
    if (session->phase != Phase::draining) return;
    // The reading goes on: closing a socket with unread bytes would destroy what was sent last.
    error_code ignored;
    if (session->tls) session->tls->close_notify();
    session->socket.shutdown(tcp::socket::shutdown_send, ignored);
    return;
  }
  session->sending = std::exchange(session->next, {});
  session->writing = true;
  if (session->tls) return write_tls(session);
  asio::async_write(session->socket, asio::buffer(session->sending),
                    [this, session](error_code error, size_t) {
                      session->writing = false;
                      // A broken connection is also noticed by the reading, which may still find the client's
                      // last words.
                      if (!error && sessions.contains(session->id)) guard(session, [&] { write(session); });
                    });
}

void RendezvousServer::State::write_tls(const SessionPtr& session) {
  while (session->sent < session->sending.size()) {
    iovec part{session->sending.data() + session->sent, session->sending.size() - session->sent};
    const ssize_t sent = session->tls->send(&part, 1);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return wait_tls(session, session->tls->events(POLLOUT), &State::write_tls);
    if (sent < 0) break;  // as in write()
    session->sent += static_cast<size_t>(sent);
  }
  const bool broken = session->sent < session->sending.size();
  session->sent = 0;
  session->writing = false;
  if (!broken) write(session);
}

void RendezvousServer::State::drain(const SessionPtr& session) {
  if (session->phase == Phase::draining) return;
  if (session->phase == Phase::open) --connections;
  handshakes.erase(session->id);
  open_handshakes = handshakes.size();
  session->phase = Phase::draining;
  session->timer.expires_after(milliseconds(kDrainMs));
  session->timer.async_wait([this, session](error_code error) {
    if (!error) drop(session);
  });
  write(session);
}

void RendezvousServer::State::drop(const SessionPtr& session) {
  if (sessions.erase(session->id) == 0) return;
  if (session->phase == Phase::open) --connections;
  handshakes.erase(session->id);
  open_handshakes = handshakes.size();
  session->timer.cancel();
  error_code ignored;
  session->tls.reset();
  session->socket.close(ignored);
}

void RendezvousServer::State::ended(const SessionPtr& session, const std::string& reason) {
  if (session->phase == Phase::handshake) ++refused;
  drop(session);
  machine.disconnect(session->id, reason);
  perform();
}

void RendezvousServer::State::perform() {
  for (;;) {
    const RendezvousMachine::Actions actions = machine.take();
    if (actions.send.empty() && actions.close.empty()) break;
    std::set<uint64_t> written;
    for (const auto& [to, frame] : actions.send) {
      const auto found = sessions.find(to);
      if (found == sessions.end()) continue;
      const SessionPtr session = found->second;
      try {
        encode(frame, session->next);
        written.insert(to);
      } catch (...) {
        // What the others are to hear is sent. This client must not miss a part.
        note_error();
        drop(session);
        machine.disconnect(to, "the rendezvous had no memory for what this process was to hear");
      }
    }
    for (const uint64_t id : written) {
      const auto found = sessions.find(id);
      if (found == sessions.end()) continue;
      const SessionPtr session = found->second;
      write(session);
      if (session->next.size() <= options.max_queued_bytes) continue;
      drop(session);
      machine.disconnect(
          id, mx::detail::concat("it does not read: ", session->next.size(), " bytes wait for it"));
    }
    for (const uint64_t id : actions.close)
      if (const auto found = sessions.find(id); found != sessions.end()) {
        const SessionPtr session = found->second;
        drain(session);
      }
  }
  lost = machine.lost();
}

void RendezvousServer::State::schedule_tick() {
  const int64_t now = steady_ms();
  const int64_t latest = now + std::min(kLongestTickMs, options.dead_after_ms);
  const int64_t at = std::clamp(machine.next_tick_ms().value_or(latest), now + 1, latest);
  tick_timer.expires_after(milliseconds(at - now));
  tick_timer.async_wait([this, at](error_code error) {
    if (error) return;
    const int64_t then = steady_ms();
    // After a stop of this process, the heartbeats of that time are still unread.
    if (then - at > kServerLateMs) machine.excuse(then - at, then);
    machine.tick(then);
    perform();
    schedule_tick();
  });
}

}  // namespace mx::comm
