#include "kvstore/server/server.h"

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "comm/deadline.h"
#include "comm/net/interface.h"
#include "comm/net/socket.h"
#include "comm/net/stream.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "kvstore/server/link.h"
#include "kvstore/server/machine.h"
#include "kvstore/server/shard.h"

namespace mx::kv {
namespace {

constexpr size_t kPooledBytes = size_t{256} << 20;
constexpr size_t kMostStores = 1024;
constexpr uint64_t kLongestHost = 256;

}  // namespace

struct Server::State {
  /// A connection whose handshake is not done.
  struct Stranger {
    comm::Stream stream;
    std::unique_ptr<comm::Handshake> handshake;
    comm::Deadline deadline;
    std::string unsent;
    bool done = false;
  };
  struct Connection {
    std::unique_ptr<Link> link;
    int32_t worker = 0;
    bool heard = false;  // a message has come
    bool farewell = false;
    std::string peer;  // the address of the worker
  };

  explicit State(ServerOptions o)
      : options(std::move(o)), listener(comm::listen_at(options.address)), address(to_string(listener.at)) {
    options.identity.rank = -1;
    options.identity.purpose = kServerPurpose;
  }

  bool run();
  void poll_once();
  void accept_strangers();
  void take_reports();
  bool serve(Stranger& stranger, short events);  // false: it is to be removed
  void note_refusal(const Stranger& stranger, const std::exception_ptr& error) const;
  void admit(Stranger& stranger);
  bool serve(ConnectionId id, Connection& connection, short events);  // false: it is to be removed
  Machine& machine(uint16_t store);
  bool has_closed_all(int32_t worker) const;
  void depart(int32_t worker);
  Bytes accept(const Connection& connection, const Header& header);
  void take(ConnectionId id, Connection& connection, Message message);
  void refuse(Connection& connection, const std::exception_ptr& error);
  void deliver(Outbox& out);
  std::string name_of(uint32_t worker) const;
  void fail(std::exception_ptr error, int32_t worker);

  ServerOptions options;
  comm::Listener listener;
  const std::string address;
  WakeUp wake;
  std::atomic<bool> stopped{false};
  std::mutex reports_mutex;
  std::vector<std::pair<std::string, int32_t>> reports;  // texts and workers; guarded by reports_mutex

  std::shared_ptr<BytePool> pool = std::make_shared<BytePool>(kPooledBytes);
  std::map<uint16_t, std::unique_ptr<Machine>> machines;
  std::list<Stranger> strangers;
  comm::Deadline accept_again = comm::Deadline::after_ms(0);  // after it has run out of descriptors
  std::map<ConnectionId, Connection> connections;
  ConnectionId next_id = 1;
  std::set<int32_t> departed;
  std::map<int32_t, std::string> hosts;          // of the workers, by their numbers
  std::map<int32_t, std::set<uint16_t>> stores;  // that each worker has opened and not closed
  std::exception_ptr failure;                    // the first one
  int32_t failed_worker = -1;                    // that caused it; -1 if it is not known
};

Server::Server(ServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Server::~Server() = default;
const std::string& Server::address() const { return state_->address; }
bool Server::run() { return state_->run(); }

void Server::stop() {
  state_->stopped.store(true);
  state_->wake.signal();
}

bool Server::stopped() const { return state_->stopped.load(); }

bool Server::left_workers() const {
  if (!stopped() || state_->failure != nullptr) return false;
  return std::any_of(state_->connections.begin(), state_->connections.end(), [this](const auto& entry) {
    const int32_t worker = entry.second.worker;
    return !entry.second.farewell && !state_->departed.contains(worker) && !state_->has_closed_all(worker);
  });
}

void Server::report_lost(const std::string& text, int32_t worker) {
  {
    std::lock_guard lock(state_->reports_mutex);
    state_->reports.emplace_back(text, worker);
  }
  state_->wake.signal();
}

bool Server::State::run() {
  for (;;) {
    if (stopped.load()) return false;
    if (options.workers > 0 && static_cast<int>(departed.size()) >= options.workers) {
      // The last answers may still be on their way.
      bool pending = false;
      for (auto& [id, connection] : connections) pending = pending || connection.link->wants_to_write();
      if (!pending) return true;
    }
    if (failure != nullptr && connections.empty()) return false;
    poll_once();
  }
}

void Server::State::poll_once() {
  const int64_t pause_ms = accept_again.left_ms();
  std::vector<pollfd> entries{{wake.fd(), POLLIN, 0},
                              {listener.socket.get(), static_cast<short>(pause_ms == 0 ? POLLIN : 0), 0}};
  int64_t wait_ms = pause_ms == 0 ? -1 : pause_ms;
  for (const Stranger& stranger : strangers) {
    const short events = stranger.stream.events(stranger.unsent.empty() ? POLLIN : POLLOUT);
    entries.push_back({stranger.stream.fd(), events, 0});
    const int64_t left = stranger.deadline.left_ms();
    wait_ms = wait_ms < 0 ? left : std::min(wait_ms, left);
  }
  std::vector<ConnectionId> ids;
  for (const auto& [id, connection] : connections) {
    const auto events = static_cast<short>(POLLIN | (connection.link->wants_to_write() ? POLLOUT : 0));
    entries.push_back({connection.link->fd(), events, 0});
    ids.push_back(id);
  }
  const int ready =
      ::poll(entries.data(), entries.size(), static_cast<int>(std::min<int64_t>(wait_ms, 60000)));
  MX_CHECK(ready >= 0 || errno == EINTR, CommunicationError, "[kvstore] expected to wait, got ",
           std::strerror(errno));
  if (ready < 0) return;
  size_t at = 2;
  for (auto it = strangers.begin(); it != strangers.end(); ++at) {
    const bool stay = serve(*it, entries[at].revents);
    it = stay ? std::next(it) : strangers.erase(it);
  }
  for (size_t i = 0; i < ids.size(); ++i, ++at) {
    const auto found = connections.find(ids[i]);
    if (found != connections.end() && !serve(ids[i], found->second, entries[at].revents))
      connections.erase(ids[i]);
  }
  if (entries[1].revents != 0) accept_strangers();
  if (entries[0].revents != 0) take_reports();
}

/// Takes the losses that the rendezvous has reported. The connections come first, because a worker's last
/// messages say more than its loss does.
void Server::State::take_reports() {
  wake.clear();
  std::vector<std::pair<std::string, int32_t>> taken;
  {
    std::lock_guard lock(reports_mutex);
    taken.swap(reports);
  }
  for (const auto& [text, worker] : taken)
    if (!departed.contains(worker) && !has_closed_all(worker))
      fail(std::make_exception_ptr(PeerLost(text)), worker);
}

void Server::State::accept_strangers() {
  for (;;) {
    comm::Fd socket(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Without descriptors the connection stays, so the loop would spin: the oldest stranger leaves, or else
      // the thread looks at the listener again a little later.
      if (!comm::out_of_descriptors(errno)) return;
      if (strangers.empty())
        accept_again = comm::Deadline::after_ms(comm::kAcceptAgainMs);
      else
        strangers.pop_front();
      return;
    }
    comm::prepare_socket(socket.get());
    if (strangers.size() >= options.max_handshakes) strangers.pop_front();
    Stranger& stranger = strangers.emplace_back(
        Stranger{std::move(socket),
                 std::make_unique<comm::Handshake>(comm::Handshake::Side::acceptor, options.identity,
                                                   comm::random_nonce()),
                 comm::Deadline::after_ms(options.handshake_timeout_ms),
                 {},
                 false});
    stranger.stream.secure(comm::Handshake::Side::acceptor, options.identity);
    stranger.handshake->start();  // an acceptor has nothing to send yet
  }
}

void Server::State::note_refusal(const Stranger& stranger, const std::exception_ptr& error) const {
  log(LogLevel::warning, "server ", options.number, " refused a connection from ",
      comm::peer_of(stranger.stream.fd()), ": ", text_of(error));
}

bool Server::State::serve(Stranger& stranger, short events) {
  if (stranger.deadline.passed()) return false;
  if (events == 0) return true;
  bool failed = false;
  while (stranger.unsent.empty() && !stranger.done) {
    std::byte buffer[comm::Handshake::kMessageBytes];
    const size_t wanted = std::min(stranger.handshake->wanted(), sizeof buffer);
    const ssize_t got = stranger.stream.receive(buffer, wanted);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (got < 0 && stranger.stream.failure()) note_refusal(stranger, stranger.stream.failure());
    if (got <= 0) return false;
    comm::Handshake::Actions actions =
        stranger.handshake->receive({buffer, static_cast<size_t>(got)}, stranger.stream.binding());
    stranger.unsent += actions.send;
    stranger.done = actions.done;
    if (actions.failure != nullptr) {
      note_refusal(stranger, actions.failure);
      failed = true;
      break;
    }
    if (!actions.send.empty()) break;
  }
  if (!stranger.unsent.empty()) {
    const ssize_t sent = stranger.stream.send(stranger.unsent.data(), stranger.unsent.size());
    if (sent > 0) stranger.unsent.erase(0, static_cast<size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
  }
  if (failed) return false;
  if (!stranger.done || !stranger.unsent.empty()) return true;
  admit(stranger);
  return false;
}

void Server::State::admit(Stranger& stranger) {
  const int32_t worker = stranger.handshake->remote().rank;
  if (worker < 0 || (options.workers > 0 && worker >= options.workers)) return;
  const ConnectionId id = next_id++;
  Connection& connection = connections[id];
  connection.worker = worker;
  connection.peer = comm::peer_of(stranger.stream.fd());
  connection.link = std::make_unique<Link>(
      std::move(stranger.stream),
      [this, &connection](const Header& header) { return accept(connection, header); });
}

Machine& Server::State::machine(uint16_t store) {
  auto& found = machines[store];
  if (found == nullptr) {
    found = std::make_unique<Machine>(std::make_shared<Shard>(pool),
                                      [this](uint32_t worker) { return name_of(worker); });
    Outbox nothing;
    for (const int32_t worker : departed) found->departed(static_cast<uint32_t>(worker), nothing);
    if (failure != nullptr) found->fail(failure, failed_worker, nothing);
  }
  return *found;
}

/// Returns memory for a body after the header has been checked.
Bytes Server::State::accept(const Connection& connection, const Header& header) {
  MX_CHECK(static_cast<int64_t>(header.worker) == connection.worker, ProtocolError,
           "[kvstore] expected messages of worker ", connection.worker, ", got one of worker ",
           header.worker);
  uint64_t largest = kLargestText;
  if (header.kind == Kind::hello) largest = kLongestHost;
  // A store is not made before it is opened.
  else if (const auto found = machines.find(header.store); found != machines.end())
    largest = found->second->largest_body(header);
  MX_CHECK(header.bytes <= largest, ProtocolError, "[kvstore] expected a body of at most ", largest,
           " bytes in a ", to_string(header.kind), ", got ", header.bytes);
  return header.bytes == 0 ? Bytes() : pool->make(header.bytes);
}

bool Server::State::serve(ConnectionId id, Connection& connection, short events) {
  if (events == 0) return true;
  try {
    bool open = true;
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0)
      open = connection.link->read([&](Message message) { take(id, connection, std::move(message)); });
    if (open) {
      connection.link->write();
      return true;
    }
    if (has_closed_all(connection.worker)) {
      // Nobody waits for it, as after _exit(0) at the end of a program.
      depart(connection.worker);
      return false;
    }
    if (!connection.heard) return false;  // the worker has given it up and makes another, or is lost
    MX_CHECK(connection.farewell, PeerLost, "[kvstore] expected a farewell, got the end of the connection");
  } catch (...) {
    if (connection.farewell) return false;  // a worker that has said farewell need not wait for anything
    const std::exception_ptr error = std::current_exception();
    if (code_of(error) == ErrorCode::protocol) refuse(connection, error);
    if (code_of(error) == ErrorCode::peer_lost && !connection.heard) return false;  // as above
    const std::string text =
        mx::detail::concat("[kvstore] expected ", name_of(static_cast<uint32_t>(connection.worker)), " at ",
                           connection.peer, " to live, got a broken connection: ", text_of(error));
    fail(std::make_exception_ptr(PeerLost(text)), connection.worker);
  }
  return false;
}

/// Tells a worker why it is disconnected, if its socket takes the message at once.
void Server::State::refuse(Connection& connection, const std::exception_ptr& error) {
  try {
    Message message;
    message.header.kind = Kind::refusal;
    message.header.flags = static_cast<uint8_t>(code_of(error));
    message.body = Bytes::of(text_of(error));
    connection.link->send(std::move(message), Link::kFirst);
    connection.link->write();
  } catch (const Error&) {  // it is being disconnected anyway
  }
}

void Server::State::take(ConnectionId id, Connection& connection, Message message) {
  Outbox out;
  connection.heard = true;
  if (message.header.kind == Kind::hello) {
    hosts[connection.worker] = message.body.text();
    return;
  }
  if (message.header.kind == Kind::farewell) {
    connection.farewell = true;
    return depart(connection.worker);
  }
  if (message.header.kind == Kind::abort) {
    connection.farewell = true;  // it closes the connection itself
    fail(make_error(message.header.flags, std::string(message.body.text())), connection.worker);
    return;
  }
  const Header header = message.header;
  if (header.kind == Kind::open) {
    const uint32_t workers = decode_open(message.body.text()).workers;
    MX_CHECK(options.workers == 0 || workers == static_cast<uint32_t>(options.workers), ProtocolError,
             "[kvstore] expected a store of ", options.workers, " workers, got one of ", workers);
    if (!machines.contains(header.store) && machines.size() >= kMostStores) {
      Message answer{header, Bytes::of(mx::detail::concat("[KVStore] expected at most ", kMostStores,
                                                          " stores with servers at a time, got one more"))};
      answer.header.kind = Kind::refusal;
      answer.header.flags = static_cast<uint8_t>(ErrorCode::invalid_state);
      answer.header.number = 0;
      answer.header.bytes = answer.body.size;
      return connection.link->send(std::move(answer));
    }
    stores[connection.worker].insert(header.store);
  }
  Machine& machine = this->machine(header.store);
  machine.receive(id, std::move(message), out);
  if (options.workers == 0) options.workers = static_cast<int>(machine.workers());
  deliver(out);
  if (header.kind == Kind::close) {
    stores[connection.worker].erase(header.store);
    if (machine.finished()) machines.erase(header.store);
  } else if (machine.workers() == 0) {
    machines.erase(header.store);  // a late message for a store that all have left
  }
}

/// Returns whether a worker has used stores and has closed all of them.
bool Server::State::has_closed_all(int32_t worker) const {
  const auto found = stores.find(worker);
  return found != stores.end() && found->second.empty();
}

/// A worker's process will send nothing more.
void Server::State::depart(int32_t worker) {
  Outbox out;
  departed.insert(worker);
  for (auto it = machines.begin(); it != machines.end();) {
    it->second->departed(static_cast<uint32_t>(worker), out);
    for (Outgoing& o : out) o.message.header.store = it->first;
    deliver(out);
    it = it->second->finished() ? machines.erase(it) : std::next(it);
  }
}

void Server::State::deliver(Outbox& out) {
  for (Outgoing& o : out) {
    const auto found = connections.find(o.connection);
    if (found != connections.end()) found->second.link->send(std::move(o.message));
  }
  out.clear();
}

/// "worker 3 on host a"
std::string Server::State::name_of(uint32_t worker) const {
  const auto host = hosts.find(static_cast<int32_t>(worker));
  return mx::detail::concat("worker ", worker, host == hosts.end() ? "" : " on host ",
                            host == hosts.end() ? "" : host->second);
}

/// Refuses all requests, present and later, with this error, which `worker` caused (-1: not known). The first
/// one counts. If the worker has made a key fail before, the error says so, because that is why the worker
/// ends.
void Server::State::fail(std::exception_ptr error, int32_t worker) {
  if (failure != nullptr) return;
  for (const auto& [number, machine] : machines) {
    const std::exception_ptr before = machine->failed_because_of(worker);
    if (before == nullptr) continue;
    error = make_error(static_cast<uint8_t>(code_of(error)),
                       mx::detail::concat(text_of(error), "; before that: ", text_of(before)));
    break;
  }
  failure = error;
  failed_worker = worker;
  log(LogLevel::warning, "server ", options.number, ": ", text_of(error));
  if (worker >= 0 && options.noticed_loss) options.noticed_loss(worker);
  for (auto& [number, machine] : machines) {
    Outbox out;
    machine->fail(error, worker, out);
    deliver(out);
  }
}

}  // namespace mx::kv
