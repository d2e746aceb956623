#include "kvstore/server/server_group.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <tuple>

#include "comm/host_name.h"
#include "comm/net/interface.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/lost.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "kvstore/server/link.h"
#include "kvstore/server/server.h"

namespace mx::kv {
namespace {

constexpr uint32_t kMissingKey = UINT32_MAX;  // the key of `missing` requests, whose answers are told by it
constexpr int64_t kMissingMs = 1000;          // how long to wait for the names of missing workers
constexpr int kConnectAgainMs = 20;           // between two connections to a server that closes them
constexpr int64_t kLossMs = 500;              // how long after a loss to wait for answers of the servers
constexpr uint64_t kLargestAnswer = uint64_t{1} << 30;

using CallKey = std::tuple<uint16_t, uint32_t, uint64_t>;  // store, key, sequence

CallKey key_of(const Header& header) { return {header.store, header.key, header.sequence}; }

/// Entries of the rendezvous that end with the number of a worker: it has closed all its stores.
std::string closed_prefix(int64_t epoch) { return comm::epoch_key(epoch, "stores_closed/worker"); }

}  // namespace

struct ServerGroup::State {
  struct Pending {
    Call call;
    comm::Deadline deadline;
  };
  /// Used by the thread of the group only, except `fresh`.
  struct Peer {
    std::string address, host;
    std::unique_ptr<Link> link;
    std::map<CallKey, Pending> pending;
    std::vector<Call> fresh;  // guarded by mutex
  };
  /// A deadline has passed: the group waits a moment for the names of the missing workers.
  struct Expired {
    std::string text;
    int server;
    CallKey call;
    comm::Deadline deadline;
  };
  /// A worker is lost. What the servers still answer says more than the loss does, so the group waits for it.
  struct Loss {
    std::exception_ptr error;
    comm::Deadline deadline;
  };

  void connect(comm::Deadline deadline);
  void run();
  void poll_once();
  void take_fresh();
  void expire();
  void drop_expired_if_answered();
  Bytes accept(Peer& peer, const Header& header);
  void take(int server, Message message);
  void end_all(const std::exception_ptr& reason);
  void send_abort(Peer& peer, const std::exception_ptr& reason);
  std::string name_of(int server) const {
    const Peer& peer = peers[static_cast<size_t>(server)];
    return mx::detail::concat("server ", server, peer.host.empty() ? "" : " on host ", peer.host, " at ",
                              peer.address);
  }
  void lose(std::exception_ptr error);
  void settle_loss();
  std::optional<Loss> current_loss() {
    std::lock_guard lock(mutex);
    return loss;
  }
  bool has_closed_all(int32_t worker) {
    std::lock_guard lock(mutex);
    return closed.contains(std::to_string(worker));
  }
  void note_cause(const char* role, int rank, bool late = false);
  comm::Stream connect_to_server(int server, comm::Deadline deadline);
  std::exception_ptr current_failure() {
    std::lock_guard lock(mutex);
    return failure;
  }

  bool current_ending() {
    std::lock_guard lock(mutex);
    return ending;
  }

  ServerGroupOptions options;
  std::vector<Peer> peers;
  WakeUp wake;
  std::optional<Expired> expired;
  std::atomic<uint16_t> stores{0};
  std::atomic<int> open_stores{0};
  uint64_t watch = 0, closed_watch = 0;

  std::mutex mutex;
  bool ending = false;           // guarded by mutex
  std::exception_ptr failure;    // guarded by mutex
  std::optional<Loss> loss;      // the first one; guarded by mutex
  std::set<std::string> closed;  // numbers of workers that have closed all their stores; guarded by mutex
  bool dead = false;             // all links are closed; thread of the group only
  bool noted = false;            // note_cause() was called; thread of the group only
  const pid_t process = ::getpid();
  std::once_flag left;
  std::thread thread;
  std::atomic<std::thread::id> thread_id{};  // as the thread itself has said; any thread may read it
};

ServerGroup::ServerGroup(ServerGroupOptions options) : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
  state_->options.identity.purpose = kServerPurpose;
  state_->peers.resize(state_->options.servers.size());
  state_->connect(comm::Deadline::after_ms(state_->options.timeout_ms));
  state_->thread = start_thread("kvstore", [state = state_] {
    prefer_quick_wakeup();
    state->thread_id = std::this_thread::get_id();
    state->run();
  });
  if (state_->options.rendezvous == nullptr) return;
  const int64_t epoch = state_->options.identity.epoch;
  const auto close = [this, prefix = closed_prefix(epoch)](std::string_view key, std::string_view) {
    std::lock_guard lock(state_->mutex);
    state_->closed.emplace(key.substr(prefix.size()));
  };
  const auto learn = [this](std::string_view key, std::string_view value) {
    const comm::LostProcess lost = comm::parse_lost(key, value);
    if (lost.role == "worker" && state_->has_closed_all(lost.rank)) return;
    auto error = std::make_exception_ptr(PeerLost(mx::detail::concat(
        "[kvstore] expected all processes of the job to live, got a loss: ", to_string(lost),
        state_->options.cause_of_loss ? state_->options.cause_of_loss(lost) : "")));
    if (lost.role == "worker") {
      state_->lose(std::move(error));
    } else {
      fail(std::move(error));
    }
  };
  try {
    // First this one, so that what a worker said before its end is known when its end is told.
    state_->closed_watch = state_->options.rendezvous->watch(closed_prefix(epoch), close);
    state_->watch = state_->options.rendezvous->watch(comm::lost_prefix(epoch), learn);
  } catch (...) {
    leave();  // ends the thread
    throw;
  }
}

ServerGroup::~ServerGroup() { leave(); }

void ServerGroup::leave() noexcept {
  // A forked child has no thread to join. There, the closure of the thread keeps the state for ever.
  if (state_->process != ::getpid()) return;
  std::call_once(state_->left, [this] {
    if (state_->options.rendezvous != nullptr) {
      state_->options.rendezvous->unwatch(state_->watch);
      state_->options.rendezvous->unwatch(state_->closed_watch);
    }
    {
      std::lock_guard lock(state_->mutex);
      state_->ending = true;
    }
    state_->wake.signal();
    // If the last call of a store ends after its owner has gone, its `done` destroys the group on the group's
    // own thread. The thread then says farewell when `done` has returned.
    if (std::this_thread::get_id() == state_->thread_id.load()) {
      state_->thread.detach();
    } else {
      state_->thread.join();
    }
  });
}

int ServerGroup::servers() const { return static_cast<int>(state_->peers.size()); }
const ServerGroupOptions& ServerGroup::options() const { return state_->options; }
uint16_t ServerGroup::new_store() { return state_->stores.fetch_add(1); }
void ServerGroup::store_opened() { state_->open_stores.fetch_add(1); }

void ServerGroup::store_closed() {
  if (state_->open_stores.fetch_sub(1) > 1 || state_->options.rendezvous == nullptr) return;
  const comm::Identity& self = state_->options.identity;
  try {
    state_->options.rendezvous->put(closed_prefix(self.epoch) + std::to_string(self.rank), "closed");
  } catch (const Error&) {  // without a rendezvous nobody learns of the end either
  }
}

std::exception_ptr ServerGroup::failure() const { return state_->current_failure(); }

void ServerGroup::start(int server, Call call) {
  std::exception_ptr failure;
  if (state_->process != ::getpid())
    return call.done(Bytes(), std::make_exception_ptr(InvalidState(
                                  "[kvstore] expected a call in the process that opened the store, got one "
                                  "in a forked child")));
  {
    std::lock_guard lock(state_->mutex);
    failure = state_->failure;
    if (failure == nullptr && state_->ending)
      failure =
          std::make_exception_ptr(InvalidState("[kvstore] expected a call before the end of the program"));
    if (failure == nullptr) state_->peers[static_cast<size_t>(server)].fresh.push_back(std::move(call));
  }
  if (failure != nullptr) return call.done(Bytes(), failure);
  if (std::this_thread::get_id() != state_->thread_id.load()) state_->wake.signal();
}

void ServerGroup::fail(std::exception_ptr reason) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->failure != nullptr) return;
    state_->failure = std::move(reason);
  }
  state_->wake.signal();
}

comm::Stream ServerGroup::State::connect_to_server(int server, comm::Deadline deadline) {
  const comm::Endpoint at = comm::parse_endpoint(peers[static_cast<size_t>(server)].address);
  for (;;) {
    try {
      comm::Stream stream = comm::connect_to(at, deadline, options.check);
      comm::handshake_on(stream, comm::Handshake::Side::connector, options.identity, deadline,
                         name_of(server), std::nullopt, options.check);
      return stream;
    } catch (const PeerLost&) {
      // The server may have had too many strangers at once, or it ends because a process is lost.
      if (deadline.passed()) throw;
    } catch (const Timeout&) {
      if (deadline.passed()) {
        note_cause("server", server, true);
        throw Timeout(mx::detail::concat("[kvstore] expected ", name_of(server),
                                         " to take a connection within ", options.timeout_ms,
                                         " ms, got no answer"));
      }
    }
    if (options.check) options.check();
    ::poll(nullptr, 0, kConnectAgainMs);
  }
}

void ServerGroup::State::connect(comm::Deadline deadline) {
  for (size_t s = 0; s < peers.size(); ++s) {
    Peer& peer = peers[s];
    const std::string& text = options.servers[s];
    const size_t space = text.find(' ');
    peer.address = text.substr(0, space);
    if (space != std::string::npos) peer.host = text.substr(space + 1);
    comm::Stream stream = connect_to_server(static_cast<int>(s), deadline);
    peer.link = std::make_unique<Link>(std::move(stream),
                                       [this, &peer](const Header& header) { return accept(peer, header); });
    Message hello;
    hello.header = {.kind = Kind::hello,
                    .worker = static_cast<uint32_t>(options.identity.rank),
                    .incarnation = options.incarnation};
    hello.body = Bytes::of(comm::host_name());
    peer.link->send(std::move(hello), Link::kFirst);
    // At once, although other servers may be waited for: a server counts a worker from its first message.
    try {
      peer.link->write();
    } catch (const Error&) {  // the thread of the group finds that out and says more
    }
  }
}

void ServerGroup::State::run() {
  for (;;) {
    bool end;
    std::exception_ptr reason;
    {
      std::lock_guard lock(mutex);
      end = ending;
      reason = failure;
    }
    if (reason != nullptr && !dead) end_all(reason);
    if (end) break;
    poll_once();
  }
  // The farewell is short, so it fits into the buffers of the sockets; if it does not, the connection is
  // stuck, and its end tells the server so.
  const comm::Deadline deadline = comm::Deadline::after_ms(2000);
  if (!dead) {
    take_fresh();
    for (Peer& peer : peers) {
      Message message;
      message.header = {.kind = Kind::farewell,
                        .worker = static_cast<uint32_t>(options.identity.rank),
                        .incarnation = options.incarnation};
      peer.link->send(std::move(message));
      try {
        for (peer.link->write(); peer.link->wants_to_write() && !deadline.passed(); peer.link->write()) {
          pollfd entry{peer.link->fd(), POLLOUT, 0};
          ::poll(&entry, 1, static_cast<int>(deadline.left_ms()));
        }
      } catch (const Error&) {  // the server is gone
      }
    }
  }
  end_all(std::make_exception_ptr(InvalidState("[kvstore] expected a call before the end of the program")));
}

void ServerGroup::State::poll_once() {
  take_fresh();
  std::vector<pollfd> entries{{wake.fd(), POLLIN, 0}};
  comm::Deadline next = comm::Deadline::after_ms(comm::kLongestTimeoutMs);
  if (expired) next = earlier(next, expired->deadline);
  if (!dead)
    if (const auto found = current_loss()) next = earlier(next, found->deadline);
  if (!dead)
    for (Peer& peer : peers) {
      const auto events = static_cast<short>(POLLIN | (peer.link->wants_to_write() ? POLLOUT : 0));
      entries.push_back({peer.link->fd(), events, 0});
      if (!expired)
        for (const auto& [key, pending] : peer.pending) next = earlier(next, pending.deadline);
    }
  const int64_t wait_ms = std::min<int64_t>(next.left_ms(), 3600 * 1000);
  if (::poll(entries.data(), entries.size(), static_cast<int>(wait_ms)) < 0) return;
  if (entries[0].revents != 0) wake.clear();
  for (size_t s = 0; !dead && s < peers.size(); ++s) {
    if (entries[s + 1].revents == 0) continue;
    Peer& peer = peers[s];
    try {
      if ((entries[s + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        const bool open =
            peer.link->read([&](Message message) { take(static_cast<int>(s), std::move(message)); });
        MX_CHECK(open, PeerLost, "it closed the connection");
      }
      peer.link->write();
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      if (code_of(error) == ErrorCode::timeout) {
        end_all(error);
        break;
      }
      if (const auto found = current_loss()) {  // because of it, the server has ended
        end_all(found->error);
        break;
      }
      const std::string what =
          peer.pending.empty() ? "" : ", during the " + peer.pending.begin()->second.call.what;
      note_cause("server", static_cast<int>(s));
      const ErrorCode code =
          code_of(error) == ErrorCode::protocol ? ErrorCode::protocol : ErrorCode::peer_lost;
      end_all(
          make_error(static_cast<uint8_t>(code),
                     mx::detail::concat("[kvstore] expected ", name_of(static_cast<int>(s)),
                                        " to live, got a broken connection", what, ": ", text_of(error))));
    }
  }
  if (!dead) settle_loss();
  if (!dead) expire();
}

/// Fails all calls, present and later, when the servers have answered those on their way, or after a moment.
void ServerGroup::State::lose(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex);
    if (!loss) loss = Loss{std::move(error), comm::Deadline::after_ms(kLossMs)};
  }
  wake.signal();
}

void ServerGroup::State::settle_loss() {
  take_fresh();
  const std::optional<Loss> found = current_loss();
  if (!found) return;
  const bool answered =
      std::all_of(peers.begin(), peers.end(), [](const Peer& peer) { return peer.pending.empty(); });
  if (answered || found->deadline.passed()) end_all(found->error);
}

/// Moves new calls to their links.
void ServerGroup::State::take_fresh() {
  std::vector<std::pair<Peer*, std::vector<Call>>> taken;
  {
    std::lock_guard lock(mutex);
    for (Peer& peer : peers)
      if (!peer.fresh.empty()) taken.emplace_back(&peer, std::exchange(peer.fresh, {}));
  }
  for (auto& [peer, calls] : taken)
    for (Call& call : calls) {
      call.header.worker = static_cast<uint32_t>(options.identity.rank);
      call.header.incarnation = options.incarnation;
      const int64_t timeout_ms = call.timeout_ms > 0 ? call.timeout_ms : options.timeout_ms;
      if (!dead) peer->link->send({call.header, call.body}, call.priority);
      const CallKey key = key_of(call.header);
      peer->pending.emplace(key, Pending{std::move(call), comm::Deadline::after_ms(timeout_ms)});
    }
}

/// The answer was on its way when the deadline passed.
void ServerGroup::State::drop_expired_if_answered() {
  if (expired && !peers[static_cast<size_t>(expired->server)].pending.contains(expired->call))
    expired.reset();
}

/// If a deadline has passed, asks the server for the workers that are missing, and then fails.
void ServerGroup::State::expire() {
  drop_expired_if_answered();
  if (expired) {
    if (!expired->deadline.passed()) return;
    note_cause("server", expired->server, true);
    return end_all(std::make_exception_ptr(Timeout(expired->text)));
  }
  for (size_t s = 0; s < peers.size(); ++s)
    for (const auto& [key, pending] : peers[s].pending) {
      if (!pending.deadline.passed()) continue;
      const Call& call = pending.call;
      const int64_t timeout_ms = call.timeout_ms > 0 ? call.timeout_ms : options.timeout_ms;
      expired =
          Expired{mx::detail::concat("[kvstore] expected the ", call.what, " to end within ", timeout_ms,
                                     " ms, got no answer of ", name_of(static_cast<int>(s))),
                  static_cast<int>(s), key, comm::Deadline::after_ms(kMissingMs)};
      Message message;
      message.header = {.kind = Kind::missing,
                        .store = call.header.store,
                        .worker = static_cast<uint32_t>(options.identity.rank),
                        .key = kMissingKey,
                        .incarnation = options.incarnation,
                        .sequence = call.header.sequence,
                        .number = call.header.key};
      peers[s].link->send(std::move(message), Link::kFirst);
      return;
    }
}

Bytes ServerGroup::State::accept(Peer& peer, const Header& header) {
  MX_CHECK(header.kind == Kind::answer || header.kind == Kind::refusal, ProtocolError,
           "[kvstore] expected an answer, got a ", to_string(header.kind));
  const auto found = peer.pending.find(key_of(header));
  if (header.kind == Kind::answer && found != peer.pending.end() && found->second.call.into != nullptr) {
    Call& call = found->second.call;
    MX_CHECK(header.bytes == call.into_bytes, ProtocolError, "[kvstore] expected ", call.into_bytes,
             " bytes as the answer to the ", call.what, ", got ", header.bytes);
    return Bytes::borrowed(call.into, call.into_bytes);
  }
  const uint64_t largest = header.kind == Kind::refusal ? kLargestText : kLargestAnswer;
  MX_CHECK(header.bytes <= largest, ProtocolError, "[kvstore] expected an answer of at most ", largest,
           " bytes, got ", header.bytes);
  return Bytes::of(std::string(header.bytes, '\0'));
}

void ServerGroup::State::take(int server, Message message) {
  Peer& peer = peers[static_cast<size_t>(server)];
  const Header& header = message.header;
  if (header.key == kMissingKey) {
    drop_expired_if_answered();
    if (!expired || expired->server != server ||
        header.sequence != std::get<2>(expired->call))  // of a call that has been answered since
      return;
    if (!message.body.empty()) expired->text += "; " + std::string(message.body.text());
    if (header.number > 0) note_cause("worker", static_cast<int>(header.number - 1), true);
    throw Timeout(expired->text);
  }
  const auto found = peer.pending.find(key_of(header));
  if (found == peer.pending.end()) {
    // The server refuses what it cannot assign to a request, and disconnects.
    if (header.kind == Kind::refusal)
      std::rethrow_exception(make_error(header.flags, std::string(message.body.text())));
    return;
  }
  Call call = std::move(found->second.call);
  peer.pending.erase(found);
  if (header.kind == Kind::refusal) {
    const std::exception_ptr error = make_error(header.flags, std::string(message.body.text()));
    if (header.number > 0 && header.number != static_cast<uint64_t>(options.identity.rank) + 1)
      note_cause("worker", static_cast<int>(header.number - 1));
    // The loss of a process concerns all calls.
    if (code_of(error) == ErrorCode::peer_lost) lose(error);
    return call.done(Bytes(), error);
  }
  call.done(std::move(message.body), nullptr);
}

/// Tells the rendezvous because of which process this one fails: it is lost, or it did not come in time.
void ServerGroup::State::note_cause(const char* role, int rank, bool late) {
  if (options.rendezvous == nullptr || std::exchange(noted, true)) return;
  std::string host;  // known of servers only
  if (std::string_view(role) == "server") host = peers[static_cast<size_t>(rank)].host;
  comm::report_consequence(
      *options.rendezvous,
      {options.identity.epoch, {"worker", options.identity.rank}, {role, rank}, late, host});
}

/// Tells a server why this worker fails, if the socket takes the message at once. So the other workers get
/// the cause, and not only the loss of this worker.
void ServerGroup::State::send_abort(Peer& peer, const std::exception_ptr& reason) {
  if (current_ending()) return;
  Message message;
  message.header = {.kind = Kind::abort,
                    .flags = static_cast<uint8_t>(code_of(reason)),
                    .worker = static_cast<uint32_t>(options.identity.rank),
                    .incarnation = options.incarnation};
  message.body = Bytes::of(text_of(reason).substr(0, kLargestText));
  try {
    peer.link->send(std::move(message), Link::kFirst);
    peer.link->write();
  } catch (const Error&) {  // the server is gone
  }
}

/// Closes all connections, so that nobody uses the buffers of calls any more, and then fails all calls.
void ServerGroup::State::end_all(const std::exception_ptr& reason) {
  dead = true;
  std::exception_ptr first;
  {
    std::lock_guard lock(mutex);
    if (failure == nullptr) failure = reason;
    first = failure;
  }
  for (Peer& peer : peers) {
    if (peer.link != nullptr) send_abort(peer, first);
    peer.link.reset();
  }
  take_fresh();
  for (Peer& peer : peers) {
    const std::map<CallKey, Pending> failed = std::exchange(peer.pending, {});
    for (const auto& [key, pending] : failed) pending.call.done(Bytes(), first);
  }
}

std::function<void(std::exception_ptr)> after_all(size_t calls,
                                                  std::function<void(std::exception_ptr)> then) {
  struct Left {
    std::mutex mutex;
    size_t calls;
    std::exception_ptr error;
    std::function<void(std::exception_ptr)> then;
  };
  if (calls == 0) {
    then(nullptr);
    return [](std::exception_ptr) {};
  }
  auto left = std::make_shared<Left>();
  left->calls = calls;
  left->then = std::move(then);
  return [left](std::exception_ptr error) {
    {
      std::lock_guard lock(left->mutex);
      if (error != nullptr && left->error == nullptr) left->error = std::move(error);
      if (--left->calls > 0) return;
    }
    left->then(left->error);
  };
}

}  // namespace mx::kv
