#include "kvstore/server/machine.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/server/machine_key.h"

namespace mx::kv {
namespace {

constexpr size_t kMostKeys = size_t{1} << 22;

bool is_control(Kind kind) {
  return kind == Kind::open || kind == Kind::set_optimizer || kind == Kind::set_option ||
         kind == Kind::barrier || kind == Kind::close;
}

/// Requests of controls that a worker makes for itself.
bool is_alone(Kind kind, bool sync) { return kind == Kind::close || (!sync && kind == Kind::set_option); }

/// How errors name the call of a control.
const char* call_of(const Header& header) {
  return header.kind == Kind::barrier ? to_string(static_cast<BarrierOf>(header.flags))
                                      : to_string(header.kind);
}

bool has_elements(Kind kind) {
  return kind == Kind::push || kind == Kind::pushpull || kind == Kind::init || kind == Kind::set_value;
}

bool only_from_first(Kind kind) {
  return kind == Kind::init || kind == Kind::set_value || kind == Kind::set_state || kind == Kind::get_state;
}

}  // namespace

Machine::Machine(std::shared_ptr<Updater> updater, NameOf name_of)
    : updater_(std::move(updater)), name_of_(std::move(name_of)) {}
Machine::~Machine() = default;

uint64_t Machine::version(uint32_t key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? 0 : found->second->version;
}

uint64_t Machine::largest_body(const Header& header) const {
  if (!has_elements(header.kind) && header.kind != Kind::set_state) return kLargestText;
  const auto found = keys_.find(header.key);
  const KeyBody* body = nullptr;
  if (found != keys_.end() && header.worker < workers_.size() && found->second->declared[header.worker])
    body = &*found->second->declared[header.worker];
  // A failed store refuses every request. Bodies that are on their way must still be read.
  if (body == nullptr && failure_.error != nullptr && config_) return config_->piece_bytes;
  MX_CHECK(body != nullptr, ProtocolError, "[kvstore] expected worker ", header.worker, " to declare key ",
           header.key, " before a ", to_string(header.kind), " of ", header.bytes, " bytes");
  uint64_t bytes = Key::bytes_of(*body);
  if (header.kind == Kind::push || header.kind == Kind::pushpull) {
    MX_CHECK(header.flags < comm::kTypes, ProtocolError, "[kvstore] expected a type below ", comm::kTypes,
             " in a ", to_string(header.kind), ", got ", int{header.flags});
    bytes = body->count * comm::size_of(static_cast<comm::Type>(header.flags));
  }
  // Two or three values of 4 bytes for each element, which itself may have 2.
  if (header.kind == Kind::set_state) return 16 * bytes + kLargestText;
  MX_CHECK(header.bytes == bytes, ProtocolError, "[kvstore] expected a ", to_string(header.kind), " of ",
           bytes, " bytes for ", describe(*body), " from worker ", header.worker, ", got ", header.bytes);
  return bytes;
}

void Machine::receive(ConnectionId connection, Message message, Outbox& out) {
  const Header header = message.header;
  Worker* const worker = known_worker(connection, message, out);
  if (worker == nullptr) return;
  worker->connection = connection;
  if (header.kind == Kind::missing) return report_missing(header, connection, out);
  if (is_control(header.kind)) {
    accept(control_[header.worker], std::move(message), out);
    advance_control(out);
    return;
  }
  auto found = keys_.find(header.key);
  if (found == keys_.end()) {
    if (failure_.error != nullptr || header.kind != Kind::declare || keys_.size() >= kMostKeys) {
      const std::exception_ptr error = failure_.error != nullptr
                                           ? failure_.error
                                           : std::make_exception_ptr(InvalidArgument(mx::detail::concat(
                                                 "[kvstore] expected a declared key, got key ", header.key)));
      Header refused = header;
      refused.number = static_cast<uint64_t>(failure_.worker + 1);
      send(refused, Kind::refusal, static_cast<uint8_t>(code_of(error)), Bytes::of(text_of(error)), out);
      return;
    }
    found = keys_.emplace(header.key, std::make_unique<Key>(workers_.size())).first;
  }
  accept(found->second->lines[header.worker], std::move(message), out);
  advance(header.key, out);
}

/// Returns the worker of a message; answers with a refusal and returns null if it is not one of the store.
Machine::Worker* Machine::known_worker(ConnectionId connection, const Message& message, Outbox& out) {
  const Header& header = message.header;
  try {
    MX_CHECK(header.kind != Kind::answer && header.kind != Kind::refusal && header.kind != Kind::farewell &&
                 header.kind != Kind::hello && header.kind != Kind::abort,
             ProtocolError, "[kvstore] expected a request, got a ", to_string(header.kind));
    if (header.kind == Kind::open) open(message);
    MX_CHECK(config_, ProtocolError, "[kvstore] expected worker ", header.worker,
             " to open the store first, got a ", to_string(header.kind));
    MX_CHECK(header.worker < workers_.size(), ProtocolError, "[kvstore] expected a worker below ",
             workers_.size(), ", got ", header.worker);
    Worker& worker = workers_[header.worker];
    if (!worker.incarnation && header.kind == Kind::open) worker.incarnation = header.incarnation;
    MX_CHECK(worker.incarnation == header.incarnation, InvalidState, "[kvstore] expected incarnation ",
             worker.incarnation.value_or(0), " of worker ", header.worker, ", got ", header.incarnation,
             ": this server belongs to an earlier start of the job");
    MX_CHECK(header.worker == 0 || !only_from_first(header.kind), ProtocolError, "[kvstore] expected a ",
             to_string(header.kind), " from worker 0 only, got one from worker ", header.worker);
    return &worker;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    Header answer = header;
    answer.kind = Kind::refusal;
    answer.flags = static_cast<uint8_t>(code_of(error));
    Bytes text = Bytes::of(text_of(error));
    answer.bytes = text.size;
    out.push_back({connection, {answer, std::move(text)}});
    return nullptr;
  }
}

void Machine::open(const Message& message) {
  const OpenBody body = decode_open(message.body.text());
  if (config_) return;  // compared when all have come
  config_ = body;
  workers_.resize(body.workers);
  control_.resize(body.workers);
}

void Machine::accept(Line& line, Message message, Outbox& out) {
  const Header header = message.header;
  if (header.sequence <= line.accepted) return repeat(line, header, out);
  if (header.sequence != line.accepted + 1) {
    const std::string text =
        mx::detail::concat("[kvstore] expected request ", line.accepted + 1, " of worker ", header.worker,
                           " for key ", header.key, ", got ", header.sequence);
    send(header, Kind::refusal, static_cast<uint8_t>(ErrorCode::protocol), Bytes::of(text), out);
    return;
  }
  ++line.accepted;
  line.requests.push_back({header, std::move(message.body)});
  if (failure_.error != nullptr) refuse(line, failure_, out);
}

/// Answers a repeated request. One that is not completed is answered later. Older ones than the last have
/// been answered and are not awaited by anybody.
void Machine::repeat(const Line& line, const Header& header, Outbox& out) {
  if (header.sequence != line.completed) return;
  if (!line.last_error.empty())
    return send(header, Kind::refusal, line.last.flags, Bytes::of(line.last_error), out);
  Bytes body;
  const auto found = keys_.find(header.key);
  if (found != keys_.end()) {
    Key& key = *found->second;
    if (header.kind == Kind::pull || header.kind == Kind::pushpull) body = key.value;
    if (header.kind == Kind::get_state)
      body = Bytes::of(encode(updater_->state(header.key, key.body(), key.value)));
  }
  send(header, Kind::answer, 0, std::move(body), out);
}

/// Answers with the workers for which a request for a key waits. Nobody is named if it has been completed:
/// the worker has its answer already. The worker itself is never named; its request may still be on its way.
void Machine::report_missing(const Header& header, ConnectionId connection, Outbox& out) {
  const std::vector<Line>* lines = nullptr;
  const Key* key = nullptr;
  if (header.number == 0) {
    lines = &control_;
  } else if (const auto found = keys_.find(static_cast<uint32_t>(header.number)); found != keys_.end()) {
    key = found->second.get();
    lines = &key->lines;
  }
  Header answer = header;
  answer.kind = Kind::answer;
  answer.number = 0;
  std::string text;
  if (lines != nullptr && (*lines)[header.worker].completed < header.sequence) {
    for (uint32_t w = 0; w < lines->size(); ++w) {
      if (w == header.worker || !(*lines)[w].requests.empty()) continue;
      if (key != nullptr && !may_wait_for(*key, header.worker, w)) continue;
      if (text.empty()) answer.number = uint64_t{w} + 1;
      text += (text.empty() ? "these did not come: " : ", ") + name(w);
    }
  }
  Bytes body = text.empty() ? Bytes() : Bytes::of(text);
  answer.bytes = body.size;
  out.push_back({connection, {answer, std::move(body)}});
}

std::string Machine::name(uint32_t worker) const {
  return name_of_ ? name_of_(worker) : mx::detail::concat("worker ", worker);
}

/// Returns the error for requests that wait for a worker that has left; no error if there is none.
Machine::Cause Machine::absence(const std::vector<Line>& lines, const std::string& what) const {
  for (size_t w = 0; w < lines.size(); ++w) {
    if (!lines[w].requests.empty() || !has_left(w)) continue;
    return {std::make_exception_ptr(WorkerLeft(
                mx::detail::concat("[kvstore] expected ", name(static_cast<uint32_t>(w)), " to take part in ",
                                   what, ", got its end: it has left the store"))),
            static_cast<int>(w)};
  }
  return {};
}

void Machine::advance_control(Outbox& out) {
  const auto has_request = [](const Line& line) { return !line.requests.empty(); };
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t w = 0; w < control_.size(); ++w) progress = run_alone(w, out) || progress;
    if (!std::all_of(control_.begin(), control_.end(), has_request)) continue;
    run_control(out);
    progress = true;
  }
  refuse_controls(out);
}

/// Refuses the controls that wait for a worker that has left.
void Machine::refuse_controls(Outbox& out) {
  for (Line& line : control_) {
    if (line.requests.empty()) continue;
    const Cause cause = absence(control_, call_of(line.requests.front().header));
    if (cause.error != nullptr) refuse(line, cause, out);
  }
}

/// Runs the request that all workers have sent. Requests with the same content are the same; for barriers the
/// call that makes them counts, and the content may differ.
void Machine::run_control(Outbox& out) {
  try {
    const Request& first = control_[0].requests.front();
    const Kind kind = first.header.kind;
    for (size_t w = 1; w < control_.size(); ++w) {
      const Request& other = control_[w].requests.front();
      const bool same =
          other.header.kind == kind && (kind == Kind::barrier ? other.header.flags == first.header.flags
                                                              : other.body.text() == first.body.text());
      MX_CHECK(same, ProtocolError, "[kvstore] expected the same call from all workers, got ",
               call_of(first.header), " from ", name(0), " and ", call_of(other.header),
               other.header.kind == kind && kind != Kind::barrier ? " with other arguments" : "", " from ",
               name(static_cast<uint32_t>(w)));
    }
    if (kind == Kind::set_optimizer) {
      updater_->set_optimizer(decode_options(first.body.text()));
    } else if (kind == Kind::set_option) {
      set_options(first.body);
    } else if (kind == Kind::barrier) {
      for (const Line& line : control_) {
        const Request& request = line.requests.front();
        if (!request.body.empty())
          std::rethrow_exception(
              make_error(static_cast<uint8_t>(request.header.number), std::string(request.body.text())));
      }
    }
    for (Line& line : control_) answer(line, Bytes(), out);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    for (Line& line : control_) refuse(line, {error}, out);
  }
}

void Machine::set_options(const Bytes& bytes) {
  const OptionsBody body = decode_options(bytes.text());
  for (const auto& [name, value] : body.options) {
    const double* number = std::get_if<double>(&value);
    MX_CHECK(number != nullptr, InvalidArgument, "[set_optimizer_option] expected a number for \"", name,
             "\", got ", mx::to_string(value));
    updater_->set_option(name, *number);
  }
}

/// Runs the first control of a worker if no other worker takes part in it: asynchronous workers do not wait
/// for each other to change an option, and that of worker 0 counts. Returns false if there is none.
bool Machine::run_alone(uint32_t worker, Outbox& out) {
  Line& line = control_[worker];
  if (line.requests.empty() || !is_alone(line.requests.front().header.kind, config_->sync)) return false;
  const bool closes = line.requests.front().header.kind == Kind::close;
  try {
    if (!closes && worker == 0) set_options(line.requests.front().body);
    answer(line, Bytes(), out);
  } catch (...) {
    refuse(line, {std::current_exception()}, out);
  }
  if (closes) departed(worker, out);
  return true;
}

void Machine::fail(const std::exception_ptr& error, int worker, Outbox& out) {
  if (failure_.error != nullptr) return;
  failure_ = {error, worker};
  const auto refuse_all = [&](std::vector<Line>& lines) {
    for (Line& line : lines)
      while (!line.requests.empty()) refuse(line, failure_, out);
  };
  refuse_all(control_);
  for (auto& [number, key] : keys_) refuse_all(key->lines);
}

std::exception_ptr Machine::failed_because_of(int worker) const {
  const auto found = causes_.find(worker);
  return found == causes_.end() ? nullptr : found->second;
}

void Machine::departed(uint32_t worker, Outbox& out) {
  if (!left_.insert(worker).second || !config_) return;
  refuse_controls(out);
  std::vector<uint32_t> numbers;
  for (const auto& [number, key] : keys_) numbers.push_back(number);
  for (uint32_t number : numbers) {
    advance(number, out);
    if (const auto found = keys_.find(number); found != keys_.end()) fail_without_absent(*found->second, out);
  }
}

void Machine::answer(Line& line, Bytes body, Outbox& out) {
  const Header header = line.requests.front().header;
  line.requests.pop_front();
  line.completed = header.sequence;
  line.last_error.clear();
  send(header, Kind::answer, 0, std::move(body), out);
}

void Machine::refuse(Line& line, const Cause& cause, Outbox& out) {
  Header header = line.requests.front().header;
  line.requests.pop_front();
  line.completed = header.sequence;
  line.last_error = text_of(cause.error);
  line.last.flags = static_cast<uint8_t>(code_of(cause.error));
  header.number = static_cast<uint64_t>(cause.worker + 1);
  // The worker may end because of it.
  if (cause.worker >= 0) causes_.try_emplace(static_cast<int>(header.worker), cause.error);
  send(header, Kind::refusal, line.last.flags, Bytes::of(line.last_error), out);
}

void Machine::send(const Header& request, Kind kind, uint8_t flags, Bytes body, Outbox& out) {
  Header header = request;
  header.kind = kind;
  header.flags = flags;
  header.bytes = body.size;
  out.push_back({workers_[request.worker].connection, {header, std::move(body)}});
}

}  // namespace mx::kv
