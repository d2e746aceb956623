#include "comm/rendezvous/machine.h"

#include <algorithm>
#include <utility>

#include "comm/net/bytes.h"
#include "comm/rendezvous/departures.h"
#include "comm/rendezvous/lost.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr size_t kLongestRole = 32, kLongestHost = 256;

bool is_role(const std::string& text) {
  return !text.empty() && text.size() <= kLongestRole &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

bool is_host(const std::string& text) {
  return text.size() <= kLongestHost &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

}  // namespace

void RendezvousMachine::connect(Connection id, RemoteIdentity remote, int64_t now_ms) {
  Client client;
  client.remote = remote;
  client.heard_ms = now_ms;
  clients_.emplace(id, std::move(client));
}

void RendezvousMachine::receive(Connection id, Frame frame, int64_t now_ms) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  client.heard_ms = now_ms;
  if (!client.joined && frame.kind != FrameKind::join)
    return break_off(
        id, ErrorCode::protocol,
        mx::detail::concat("expected the frame 'join' first, got '", to_string(frame.kind), "'"));
  switch (frame.kind) {
    case FrameKind::join:
      return join(id, client, frame);
    case FrameKind::put:
      return write(id, frame);
    case FrameKind::tell:
      return tell(id, frame);
    case FrameKind::get:
      return open_get(id, client, frame);
    case FrameKind::cancel:
      if (client.gets.erase(frame.request) > 0) send(id, FrameKind::done, frame.request);
      return;
    case FrameKind::watch:
      return open_watch(id, client, frame);
    case FrameKind::unwatch:
      client.watches.erase(static_cast<uint64_t>(frame.number));
      return send(id, FrameKind::done, frame.request);
    case FrameKind::heartbeat:
      client.step = frame.number;
      return send(id, FrameKind::heartbeat, frame.request, {}, {}, frame.number);
    case FrameKind::farewell:
      client.farewell = true;
      publish_end(client);
      return send(id, FrameKind::done, frame.request);
    default:
      return break_off(id, ErrorCode::protocol,
                       mx::detail::concat("expected a frame of a client, got '", to_string(frame.kind), "'"));
  }
}

void RendezvousMachine::disconnect(Connection id, const std::string& reason) {
  auto node = clients_.extract(id);
  if (node) publish_loss(node.mapped(), reason);
}

void RendezvousMachine::tick(int64_t now_ms) {
  std::vector<Connection> silent;
  for (const auto& [id, client] : clients_)
    if (client.remote.rank >= 0 && now_ms - client.heard_ms >= options_.dead_after_ms) silent.push_back(id);
  for (const Connection id : silent) {
    const std::string reason = mx::detail::concat("no heartbeat for ", options_.dead_after_ms, " ms");
    auto node = clients_.extract(id);
    answer_error(id, 0, ErrorCode::lost, "declared this process lost: " + reason);
    actions_.close.push_back(id);
    publish_loss(node.mapped(), reason);
  }
}

void RendezvousMachine::excuse(int64_t ms, int64_t now_ms) {
  for (auto& [id, client] : clients_) client.heard_ms = std::min(client.heard_ms + ms, now_ms);
}

std::optional<int64_t> RendezvousMachine::next_tick_ms() const {
  std::optional<int64_t> next;
  for (const auto& [id, client] : clients_) {
    if (client.remote.rank < 0) continue;
    const int64_t at = client.heard_ms + options_.dead_after_ms;
    if (!next || at < *next) next = at;
  }
  return next;
}

int64_t RendezvousMachine::step_of(int64_t epoch, const ProcessName& process) const {
  for (const auto& [id, client] : clients_)
    if (client.remote.epoch == epoch && client.remote.rank == process.rank && client.role == process.role)
      return client.step;
  return -1;
}

void RendezvousMachine::join(Connection id, Client& client, const Frame& frame) {
  if (client.joined) return break_off(id, ErrorCode::protocol, "expected one frame 'join', got another");
  if (!is_role(frame.key) || !is_host(frame.value))
    return break_off(id, ErrorCode::protocol,
                     mx::detail::concat("expected a role and a host, got ", in_quotes(frame.key), " and ",
                                        in_quotes(frame.value)));
  client.joined = true;
  client.role = frame.key;
  client.host = frame.value;
  client.step = frame.number;
  send(id, FrameKind::done, frame.request);
}

void RendezvousMachine::tell(Connection id, const Frame& frame) {
  if (frame.key.empty()) return answer_empty_key(id, frame.request);
  send_to_watches(frame.key, frame.value);
  send(id, FrameKind::done, frame.request);
}

void RendezvousMachine::write(Connection id, Frame& frame) {
  if (frame.key.empty()) return answer_empty_key(id, frame.request);
  const std::string* const present = table_.find(frame.key);
  if (present == nullptr) {
    if (table_.bytes() + frame.key.size() + frame.value.size() > options_.max_table_bytes)
      return answer_error(id, frame.request, ErrorCode::invalid_state,
                          mx::detail::concat("expected at most ", options_.max_table_bytes,
                                             " bytes of entries, got more with key ", in_quotes(frame.key)));
    put(frame.key, frame.value);
  } else if (*present != frame.value) {
    return answer_error(id, frame.request, ErrorCode::invalid_state,
                        mx::detail::concat("expected key ", in_quotes(frame.key),
                                           " to be written once, got another value for it"));
  }
  send(id, FrameKind::done, frame.request);
}

void RendezvousMachine::open_get(Connection id, Client& client, Frame& frame) {
  if (const std::string* const value = table_.find(frame.key); value != nullptr)
    return send(id, FrameKind::value, frame.request, {}, *value);
  if (client.gets.size() + client.watches.size() >= options_.max_requests)
    return answer_error(
        id, frame.request, ErrorCode::invalid_state,
        mx::detail::concat("expected at most ", options_.max_requests, " open requests, got more"));
  client.gets[frame.request] = std::move(frame.key);
}

void RendezvousMachine::open_watch(Connection id, Client& client, Frame& frame) {
  if (client.gets.size() + client.watches.size() >= options_.max_requests)
    return answer_error(
        id, frame.request, ErrorCode::invalid_state,
        mx::detail::concat("expected at most ", options_.max_requests, " open requests, got more"));
  table_.each(frame.key, [&](const std::string& key, const std::string& value) {
    send(id, FrameKind::changed, frame.request, key, value);
  });
  client.watches[frame.request] = std::move(frame.key);
}

void RendezvousMachine::put(const std::string& key, const std::string& value) {
  table_.add(key, value);
  for (auto& [id, client] : clients_) {
    for (auto wait = client.gets.begin(); wait != client.gets.end();) {
      if (wait->second != key) {
        ++wait;
        continue;
      }
      send(id, FrameKind::value, wait->first, {}, value);
      wait = client.gets.erase(wait);
    }
  }
  send_to_watches(key, value);
}

void RendezvousMachine::send_to_watches(const std::string& key, const std::string& value) {
  for (const auto& [id, client] : clients_)
    for (const auto& [request, prefix] : client.watches)
      if (key.starts_with(prefix)) send(id, FrameKind::changed, request, key, value);
}

void RendezvousMachine::publish_loss(const Client& client, const std::string& reason) {
  if (client.remote.rank < 0 || client.farewell || !client.joined) return;
  if (epoch_ && client.remote.epoch != *epoch_) return;
  const LostProcess lost{client.remote.epoch, client.role, client.remote.rank,
                         client.host,         client.step, reason};
  ++lost_;
  // An agent that saw the process die may have published it already, and then knows more.
  const std::string key = lost_key(lost);
  if (table_.find(key) == nullptr) put(key, lost_value(lost));
}

void RendezvousMachine::publish_end(const Client& client) {
  if (client.remote.rank < 0) return;
  if (epoch_ && client.remote.epoch != *epoch_) return;
  const std::string key = ended_key(client.remote.epoch, client.role, client.remote.rank);
  if (table_.find(key) == nullptr) put(key, client.host);
}

void RendezvousMachine::answer_error(Connection id, uint64_t request, ErrorCode code, std::string message) {
  message.resize(std::min(message.size(), Rendezvous::kLongestValue));
  send(id, FrameKind::error, request, {}, std::move(message), static_cast<int64_t>(code));
}

void RendezvousMachine::answer_empty_key(Connection id, uint64_t request) {
  answer_error(id, request, ErrorCode::invalid_argument, "expected a key, got an empty one");
}

void RendezvousMachine::break_off(Connection id, ErrorCode code, std::string message) {
  answer_error(id, 0, code, message);
  actions_.close.push_back(id);
  disconnect(id, "broke the protocol of the rendezvous: " + message);
}

void RendezvousMachine::send(Connection to, FrameKind kind, uint64_t request, std::string key,
                             std::string value, int64_t number) {
  actions_.send.emplace_back(to, Frame{kind, request, number, std::move(key), std::move(value)});
}

}  // namespace mx::comm
