// The part of the machine that handles requests for keys.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/server/machine.h"
#include "kvstore/server/machine_key.h"

namespace mx::kv {

/// Does all that can be done for a key now. One request may make others possible: the last push of a round
/// completes those of all workers.
void Machine::advance(uint32_t number, Outbox& out) {
  for (bool progress = true; progress;) {
    progress = false;
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      const auto found = keys_.find(number);  // step() may erase the key
      if (found == keys_.end()) return;
      if (found->second->lines[w].requests.empty()) continue;
      progress = step(number, *found->second, w, out) || progress;
    }
  }
}

/// Tries to make progress with the first request of a worker. Returns false if it must wait.
bool Machine::step(uint32_t number, Key& key, uint32_t worker, Outbox& out) {
  Line& line = key.lines[worker];
  Request& request = line.requests.front();
  if (key.failure.error != nullptr) return step_in_failed(number, key, worker, out);
  // An erase may wait for a worker that has left since.
  if (request.waiting && request.header.kind != Kind::erase) return false;
  try {
    const Kind kind = request.header.kind;
    if (kind == Kind::declare) return step_declare(key, worker, out);
    MX_CHECK(key.agreed, ProtocolError, "[kvstore] expected worker ", worker, " to wait until key ", number,
             " is declared, got a ", to_string(kind));
    switch (kind) {
      case Kind::push:
      case Kind::pushpull:
        return step_push(number, key, worker, out);
      case Kind::failed:
        return step_failed(key, worker, out);
      case Kind::pull:
        if (!key.has_value) return fail_without_absent(key, out);
        answer(line, key.value, out);
        return true;
      case Kind::init:
        MX_CHECK(!key.has_value && key.body().stored, InvalidArgument, "[init] expected a new key, got ",
                 describe(key.body()));
        [[fallthrough]];
      case Kind::set_value:
        key.value = std::move(request.body);
        key.has_value = true;
        updater_->forget_value(number);
        answer(line, Bytes(), out);
        return true;
      case Kind::get_state:
        answer(line, Bytes::of(encode(updater_->state(number, key.body(), key.value))), out);
        return true;
      case Kind::set_state:
        updater_->set_state(number, key.body(), key.value, decode_state(request.body.text()));
        answer(line, Bytes(), out);
        return true;
      case Kind::erase:
        return step_round(number, key, worker, out);
      default:
        throw ProtocolError(
            mx::detail::concat("[kvstore] expected a request for a key, got a ", to_string(kind)));
    }
  } catch (...) {
    refuse(line, {std::current_exception()}, out);
    return true;
  }
}

bool Machine::step_declare(Key& key, uint32_t worker, Outbox& out) {
  Line& line = key.lines[worker];
  KeyBody body = decode_key(line.requests.front().body.text());
  MX_CHECK(!key.declared[worker], ProtocolError, "[kvstore] expected a new key, got ", describe(body),
           ", which worker ", worker, " has declared as ", describe(*key.declared[worker]));
  MX_CHECK(Key::bytes_of(body) <= config_->piece_bytes, ProtocolError,
           "[kvstore] expected pieces of at most ", config_->piece_bytes, " bytes, got ", Key::bytes_of(body),
           " of ", describe(body));
  line.requests.front().waiting = true;
  key.declared[worker] = std::move(body);
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    if (w == worker || !key.declared[w]) continue;
    const KeyBody &mine = *key.declared[worker], &other = *key.declared[w];
    const bool same = encode(mine) == encode(other);
    if (same) continue;
    fail_key(key,
             {std::make_exception_ptr(ProtocolError(mx::detail::concat(
                 "[kvstore] expected the same array from all workers, got ", describe(mine), " from worker ",
                 worker, " and ", describe(other), " from worker ", w)))},
             out);
    return true;
  }
  for (const auto& declared : key.declared)
    if (!declared) return fail_without_absent(key, out);
  key.agreed = true;
  for (Line& each : key.lines) answer(each, Bytes(), out);
  return true;
}

/// Removes the key when all workers have asked for it.
bool Machine::step_round(uint32_t number, Key& key, uint32_t worker, Outbox& out) {
  key.lines[worker].requests.front().waiting = true;
  if (differs(key, worker, out)) return true;
  // Workers that have left erase no more.
  for (size_t w = 0; w < key.lines.size(); ++w) {
    const Line& line = key.lines[w];
    if (line.requests.empty() ? !has_left(w) : line.requests.front().header.kind != Kind::erase) return false;
  }
  for (Line& line : key.lines)
    if (!line.requests.empty()) answer(line, Bytes(), out);
  updater_->erase(number);
  keys_.erase(number);
  return true;
}

bool Machine::step_push(uint32_t number, Key& key, uint32_t worker, Outbox& out) {
  Line& line = key.lines[worker];
  Request& request = line.requests.front();
  const bool wants_value = request.header.kind == Kind::pushpull;
  const auto type = static_cast<comm::Type>(request.header.flags);  // largest_body() has checked it
  if (config_->sync || !key.body().stored) {
    if (!key.sum) {
      key.sum.emplace(type, workers_.size());
      key.divisor = request.header.number;
      key.first = worker;
    }
    if (key.divisor != request.header.number) {
      const auto kind = [](uint64_t divisor) {
        return divisor == 0 ? std::string("a sum") : mx::detail::concat("a mean of ", divisor);
      };
      fail_key(key,
               {std::make_exception_ptr(ProtocolError(mx::detail::concat(
                   "[kvstore] expected the same call from all workers for ", describe(key.body()), ", got ",
                   kind(request.header.number), " values from ", name(worker), " and ", kind(key.divisor),
                   " from ", name(key.first))))},
               out);
      return true;
    }
    if (key.sum->type() != type) {
      fail_key(key,
               {std::make_exception_ptr(ProtocolError(mx::detail::concat(
                   "[kvstore] expected values of one type from all workers for ", describe(key.body()),
                   ", got ", comm::to_string(type), " from ", name(worker), " and ",
                   comm::to_string(key.sum->type()), " from others")))},
               out);
      return true;
    }
    MX_CHECK(!key.sum->has(worker), ProtocolError, "[kvstore] expected one push of worker ", worker,
             " in a round of ", describe(key.body()));
    request.waiting = true;
    if (differs(key, worker, out)) return true;
    key.sum->add(worker, std::move(request.body));
    if (!key.sum->complete()) return fail_without_absent(key, out);
    try {
      RankSum sum = std::move(*key.sum);
      key.sum.reset();
      apply(number, key, sum.take(std::exchange(key.divisor, 0)), type);
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      for (Line& each : key.lines) refuse(each, {error}, out);
      return true;
    }
    for (Line& each : key.lines) {
      const bool with_value = each.requests.front().header.kind == Kind::pushpull;
      answer(each, with_value ? key.value : Bytes(), out);
    }
    return true;
  }
  if (!key.has_value) return fail_without_absent(key, out);
  if (too_far_ahead(key, worker)) return false;
  RankSum one(type, 1);
  one.add(0, std::move(request.body));
  if (key.pushes[worker] != kPushesNoMore) ++key.pushes[worker];
  apply(number, key, one.take(request.header.number), type);
  answer(line, wants_value ? key.value : Bytes(), out);
  return true;
}

/// Fails the key, and returns true, if a worker wants to erase it while another one waits for its push.
bool Machine::differs(Key& key, uint32_t worker, Outbox& out) {
  const bool erases = key.lines[worker].requests.front().header.kind == Kind::erase;
  for (size_t w = 0; w < key.lines.size(); ++w) {
    if (key.lines[w].requests.empty() || !key.lines[w].requests.front().waiting) continue;
    const Kind other = key.lines[w].requests.front().header.kind;
    if ((other == Kind::erase) == erases) continue;
    fail_key(key,
             {std::make_exception_ptr(ProtocolError(mx::detail::concat(
                 "[kvstore] expected the same call from all workers for ", describe(key.body()), ", got ",
                 to_string(key.lines[worker].requests.front().header.kind), " from worker ", worker, " and ",
                 to_string(other), " from worker ", w)))},
             out);
    return true;
  }
  return false;
}

void Machine::apply(uint32_t number, Key& key, Bytes sum, comm::Type type) {
  if (type != key.body().type) sum = updater_->convert(sum, type, key.body().type);
  if (key.body().stored && updater_->has_optimizer()) {
    MX_CHECK(key.has_value, ProtocolError, "[kvstore] expected a value of ", describe(key.body()),
             " before the first push, got none");
    key.value = updater_->update(number, key.body(), key.value, sum);
  } else {
    key.value = std::move(sum);
    if (key.body().stored) updater_->forget_value(number);
  }
  key.has_value = true;
  ++key.version;
}

/// Returns by how many pushes a worker may get ahead of the slowest one.
uint64_t Machine::staleness() const {
  if (config_->staleness < 0) return kPushesNoMore;
  return static_cast<uint64_t>(std::max<int64_t>(config_->staleness, 1));
}

bool Machine::too_far_ahead(const Key& key, uint32_t worker) const {
  if (key.pushes[worker] == kPushesNoMore) return false;
  uint64_t slowest = key.pushes[worker];
  for (size_t w = 0; w < workers_.size(); ++w)
    if (!has_left(w)) slowest = std::min(slowest, key.pushes[w]);
  return key.pushes[worker] - slowest >= staleness();
}

/// Returns whether a request of a worker for the key waits until the other worker has done something.
bool Machine::may_wait_for(const Key& key, uint32_t worker, uint32_t other) const {
  if (config_->sync || !key.agreed || !key.body().stored) return true;
  const Line& line = key.lines[worker];
  if (!line.requests.empty() && line.requests.front().header.kind == Kind::erase) return true;
  if (!key.has_value) return other == 0;  // which initialises the key
  if (key.pushes[worker] == kPushesNoMore || key.pushes[worker] <= key.pushes[other]) return false;
  return !has_left(other) && key.pushes[worker] - key.pushes[other] >= staleness();
}

/// A worker's value has failed. In rounds, no sum can be made; asynchronous workers go on without it.
bool Machine::step_failed(Key& key, uint32_t worker, Outbox& out) {
  Line& line = key.lines[worker];
  const Request& request = line.requests.front();
  const bool goes_on = !config_->sync && key.body().stored;
  // The message may come before the value of worker 0. If worker 0 itself has none, there will be no key.
  if (goes_on && !key.has_value && worker != 0) return fail_without_absent(key, out);
  if (goes_on && key.has_value) {
    key.pushes[worker] = kPushesNoMore;  // its store sends nothing more for the key but an erase
    answer(line, Bytes(), out);
    return true;
  }
  const std::string text =
      mx::detail::concat("[kvstore] expected a value of ", describe(key.body()), " from ", name(worker),
                         ", got its error: ", request.body.text());
  fail_key(key, {make_error(request.header.flags, text), static_cast<int>(worker)}, out);
  return true;
}

/// Answers a request for a key that has failed. The key goes when all workers have erased it.
bool Machine::step_in_failed(uint32_t number, Key& key, uint32_t worker, Outbox& out) {
  Line& line = key.lines[worker];
  if (line.requests.front().header.kind != Kind::erase) {
    refuse(line, key.failure, out);
    return true;
  }
  answer(line, Bytes(), out);
  key.erased.insert(worker);
  for (uint32_t w = 0; w < workers_.size(); ++w)
    if (!key.erased.contains(w) && !has_left(w)) return true;
  updater_->erase(number);
  keys_.erase(number);
  return true;
}

/// Fails the key, and returns true, if a request waits for a worker that has left.
bool Machine::fail_without_absent(Key& key, Outbox& out) {
  if (left_.empty()) return false;
  const bool waits_for_value = !key.has_value && has_left(0) && key.lines[0].requests.empty();
  for (uint32_t w = 0; w < key.lines.size(); ++w) {
    const Line& line = key.lines[w];
    if (line.requests.empty()) continue;
    const Kind kind = line.requests.front().header.kind;
    if (kind == Kind::erase || (!line.requests.front().waiting && !waits_for_value)) continue;
    const std::string what = key.declared[w] ? describe(*key.declared[w]) : "a key";
    const Cause cause =
        absence(key.lines,
                mx::detail::concat(kind == Kind::declare ? "the first use" : to_string(kind), " of ", what));
    if (cause.error == nullptr) return false;
    fail_key(key, cause, out);
    return true;
  }
  return false;
}

void Machine::fail_key(Key& key, const Cause& cause, Outbox& out) {
  if (cause.worker >= 0) causes_.try_emplace(cause.worker, cause.error);
  key.failure = cause;
  for (Line& line : key.lines)
    while (!line.requests.empty()) refuse(line, cause, out);
}

}  // namespace mx::kv
