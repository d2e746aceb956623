// StreamOrder: finds the operations that have ended on their devices, and notifies the operations and threads
// that wait for them.
//
// An operation retires after everything that it depends on, and after the operations before it on its stream.
// So if a point has retired, everything before it has retired too. This holds even on a lost device, where
// events fail at once while the work of other devices that they were ordered after goes on.
#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/make_room.h"
#include "engine/detail/dependency.h"
#include "engine/detail/stream_order_state.h"

namespace mx::detail {

namespace {

struct NoSink {};

// Returns true if the operation that makes the version has not been completed, because its token has not been
// used.
bool is_early(const Touch& touch) {
  return static_cast<int32_t>(touch.marks->var->writes_done - touch.version) < 0;
}

// Poisons the version that a failed operation made, if it is still what the variable holds.
void poison(const Touch& touch, const StreamRecord& record) {
  VarBlock* var = touch.marks->var;
  if (var->writes_done == touch.version) {
    // A replay poisons everything that it writes with its first failure.
    if (var->failure == record.failure || (var->failure != nullptr && record.replay.op != nullptr)) return;
  } else {
    // Later operations have ended. If one of them has replaced the value, there is nothing to poison. If all
    // were skipped, the memory still holds what this one left, and recover() must not take it for a good
    // value.
    const StreamPoint write = touch.marks->write;
    const bool replaced = write.stream != record.stream->id || write.clock != record.clock;
    if (replaced || (var->failure != nullptr && (var->flags & kVarRecoverable) == 0)) return;
  }
  DependencyState<NoSink>::set_failure(var, record.failure, false);
}

void skip_if_poisoned(Op* op) {
  for_each_link(op, [&](Link& link) {
    if (link.inherits() && link.var()->failure != nullptr) op->flags |= kOpSkip;
  });
}

bool dependences_retired(const StreamRecord& record) {
  for (const Dependence& dependence : record.dependences) {
    if (!dependence.record->is_retired) return false;
  }
  return true;
}

}  // namespace

bool StreamOrder::host_may_start(Op* op) {
  State& state = *state_;
  const auto for_each_point = [&](auto&& f) {
    const auto at = [&](const StreamPoint& point) {
      if (StreamRecord* record = state.live(point)) f(record);
    };
    for_each_link(op, [&](Link& link) {
      const StreamMarks* marks = link.var()->marks;
      if (marks == nullptr) [[likely]]
        return;
      at(marks->write);
      if (!link.exclusive()) return;
      for (const StreamPoint& read : marks->reads) at(read);
    });
  };
  uint32_t points = 0;
  for_each_point([&](StreamRecord*) { ++points; });
  if (points == 0) {
    skip_if_poisoned(op);
    return true;
  }
  HostWait* wait = nullptr;
  try {
    for_each_point([&](StreamRecord* record) { make_room(record->host_waits, points); });
    wait = state.host_waits.take();
  } catch (const std::bad_alloc&) {
    op->next() = state.postponed;
    state.postponed = op;
    return false;
  }
  *wait = {op, points};
  for_each_point([&](StreamRecord* record) { record->host_waits.push_back(wait); });
  return false;
}

bool StreamOrder::landed(VarBlock* var, uint32_t version) {
  StreamMarks* marks = var->marks;
  if (marks == nullptr) return true;
  if (static_cast<int32_t>(marks->landed - version) >= 0) return true;  // versions wrap
  // A version that no stream made, because its operation was skipped, has landed when the last version that a
  // stream made has landed.
  if (state_->live(marks->write) == nullptr) return true;
  marks->watched = true;
  return false;
}

// `own_failure`: the failure that its device reports, or null.
void StreamOrder::retire(StreamRecord* record, Failure* own_failure) {
  State& state = *state_;
  for (const Dependence& dependence : record->dependences) {
    if (record->failure != nullptr) break;
    if (!dependence.data || dependence.record->failure == nullptr) continue;
    record->failure = dependence.record->failure;
    record->failure->retain();
    record->inherited = true;
  }
  if (own_failure != nullptr && record->failure == nullptr) {
    own_failure->retain();
    record->failure = own_failure;
  }
  Failure* failure = record->failure;
  if (record->issued_ns != 0) [[unlikely]] {
    const int64_t now = now_ns();
    int64_t begin = std::max(record->issued_ns, record->stream->ended_ns);
    for (const Dependence& dependence : record->dependences)
      begin = std::max(begin, dependence.record->ended_ns);
    listener_.ended_on_device(record->name, record->stream->device->context, record->stream->id, begin, now);
    record->stream->ended_ns = record->ended_ns = now;
  }
  record->is_retired = true;
  record->stream->retired = record->clock;
  state.now_step = std::max(state.now_step, record->step);
  --outstanding_;
  bool early = false;
  // While a replay runs, the failure of a node fails the whole replay. Its versions are made only when it
  // ends, so nothing is marked as landed or poisoned here.
  const bool ongoing = record->replay.ongoing();
  if (ongoing && failure != nullptr) listener_.node_failed(record->replay.op, failure, record->inherited);
  for (const Touch& touch : record->touches) {
    if (!touch.exclusive || touch.superseded || ongoing) continue;
    touch.marks->landed = touch.version;
    if (failure == nullptr || touch.marks->var == nullptr) continue;
    if (is_early(touch)) [[unlikely]] {
      early = true;
    } else {
      poison(touch, *record);
    }
  }
  if (early) [[unlikely]] {
    failure->retain();
    early_failure(record->op) = failure;
  }

  // Notify the listener. The record stays valid until the end of this function.
  listener_.retired(record->epoch, record->bytes, failure, record->inherited);
  for (HostWait* wait : record->host_waits) {
    if (--wait->remaining != 0) continue;
    Op* op = wait->op;
    state.host_waits.give(wait);
    skip_if_poisoned(op);
    listener_.host_may_start(op);
  }
  record->host_waits.clear();
  for (const Touch& touch : record->touches) {
    VarBlock* watched = touch.exclusive && touch.marks->watched ? touch.marks->var : nullptr;
    if (watched != nullptr) touch.marks->watched = false;
    state.unref(touch.marks);
    if (watched != nullptr) listener_.maybe_landed(watched, {record->stream->id, record->clock}, failure);
  }
  record->touches.clear();
  for (const Dependence& dependence : record->dependences) state.unref(dependence.record);
  record->dependences.clear();
  state.unref(record->clocks);
  record->clocks = nullptr;
  state.unref(record);
}

Failure* StreamOrder::take_early_failure(Op* op) { return std::exchange(early_failure(op), nullptr); }

bool StreamOrder::poll() {
  if (begin_poll()) {
    do {
      query();
    } while (continue_poll());
  }
  return outstanding_ != 0;
}

bool StreamOrder::begin_poll() {
  State& state = *state_;
  if (state.polling) return false;
  ++state.polls;
  gather_queries();
  if (state.query_count == 0) {
    retry_postponed();
    return false;
  }
  state.polling = true;
  return true;
}

// Collects, for each stream, the first operations that have been issued and whose dependences have retired:
// only those can retire now. Leaves out streams whose first operation this poll has found pending.
void StreamOrder::gather_queries() {
  constexpr uint64_t kAhead = 8;  // so that one round retires several
  State& state = *state_;
  state.query_count = 0;
  const size_t streams = state.active.size();
  for (size_t i = 0; i < streams; ++i) {
    StreamState& stream = *state.active[(state.poll_turn + i) % streams];
    if (stream.pending_poll == state.polls) continue;
    const uint64_t last = std::min(stream.tail, stream.retired + kAhead);
    for (uint64_t clock = stream.retired + 1; clock <= last; ++clock) {
      StreamRecord* record = stream.at(clock);
      if (!record->is_issued || !dependences_retired(*record)) break;
      if (state.query_count == State::kQueries) {
        state.poll_turn = (state.poll_turn + i) % streams;
        return;
      }
      state.queries[state.query_count++] = {record, EventStatus::pending, nullptr, false};
    }
  }
}

// Called without the lock. Only the polling thread retires operations, so those that it asks about cannot
// retire meanwhile: their events keep their generation, and their names and places do not change.
void StreamOrder::query() {
  assert_no_engine_lock();
  State& state = *state_;
  const std::span<Query> all(state.queries, state.query_count);
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin;
    while (end < all.size() && all[end].record->stream == all[begin].record->stream) ++end;
    query_stream(all.subspan(begin, end - begin));
    begin = end;
  }
}

// Asks about operations of one stream, in their order, until one is pending.
void StreamOrder::query_stream(std::span<Query> queries) {
  for (Query& query : queries) {
    StreamRecord& record = *query.record;
    // If the event was never recorded, end() was not called. That is reported as an error, because otherwise
    // the operation would never end.
    query.status = record.event != nullptr ? record.event->query() : EventStatus::failed;
    if (query.status == EventStatus::pending) return;
    if (query.status != EventStatus::complete && record.end_failure == nullptr) {
      const std::exception_ptr error = record.event != nullptr ? record.event->error() : nullptr;
      query.lost = error != nullptr && error == record.stream->device->device->lost();
      query.failure = failure_of(error, record.name, record.where);
    }
    // Often all have ended. A backend that knows of the last one need not ask its driver about those between.
    const Event* const last = queries.back().record->event;
    if (&query == &queries.front() && queries.size() > 2 && last != nullptr) (void)last->query();
  }
}

// Chooses the operation to blame for each device that has been lost. Returns false if a device is found lost
// for the first time: streams that were asked before that must be asked again, because the operation may be
// theirs.
bool StreamOrder::blame_for_loss() {
  const std::span<Query> all(state_->queries, state_->query_count);
  bool known = true;
  for (const Query& query : all)
    if (query.lost && !std::exchange(query.record->stream->device->seen_lost, true)) known = false;
  if (!known) return false;
  for (const Query& query : all) {
    DeviceState& device = *query.record->stream->device;
    if (!query.lost || device.loss != nullptr) continue;
    const Query* first = &query;
    for (const Query& other : all)
      if (other.lost && other.record->stream->device == &device &&
          other.record->sequence < first->record->sequence)
        first = &other;
    device.loss = first->failure;
    device.loss->retain();
  }
  return true;
}

bool StreamOrder::continue_poll() {
  State& state = *state_;
  bool progress = false;
  if (!blame_for_loss()) {
    ++state.polls;  // so that streams found pending are asked again
    for (Query& query : std::span(state.queries, state.query_count)) {
      if (query.failure != nullptr) std::exchange(query.failure, nullptr)->release_later();
    }
    gather_queries();
    return true;
  }
  for (size_t i = 0; i < state.query_count; ++i) {
    Query& query = state.queries[i];
    StreamRecord* record = query.record;
    StreamState& stream = *record->stream;
    Failure* failure = query.failure != nullptr ? query.failure : record->end_failure;
    if (query.lost && record->failure == nullptr && failure != stream.device->loss) {
      failure = stream.device->loss;
      record->inherited = true;
    }
    if (query.status == EventStatus::pending) {
      stream.pending_poll = state.polls;
    } else if (dependences_retired(*record)) {
      retire(record, query.status == EventStatus::complete ? nullptr : failure);
      progress = true;
    }
    if (query.failure != nullptr) query.failure->release_later();
    query.failure = nullptr;
  }
  // If an operation has retired, look again: operations of other streams may have waited only for that.
  if (progress) gather_queries();
  if (progress && state.query_count > 0) return true;
  state.polling = false;
  size_t kept = 0;
  for (StreamState* stream : state.active) {
    stream->is_active = stream->load() != 0;
    if (stream->is_active) state.active[kept++] = stream;
  }
  state.active.resize(kept);
  retry_postponed();
  return false;
}

void StreamOrder::retry_postponed() {
  for (Op* op = std::exchange(state_->postponed, nullptr); op != nullptr;) {
    Op* next = op->next();
    if (host_may_start(op)) listener_.host_may_start(op);
    op = next;
  }
}

void StreamOrder::for_each_parked(void (*f)(Op*, void*), void* argument) {
  for (Op* op = state_->postponed; op != nullptr; op = op->next()) f(op, argument);
  for (StreamState* stream : state_->active) {
    for (uint64_t clock = stream->retired + 1; clock <= stream->tail; ++clock) {
      for (const HostWait* wait : stream->at(clock)->host_waits) f(wait->op, argument);
    }
  }
}

}  // namespace mx::detail
