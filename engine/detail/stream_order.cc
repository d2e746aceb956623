#include "engine/detail/stream_order.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/detail/dependency.h"
#include "engine/detail/pools.h"
#include "engine/detail/segment_group.h"
#include "engine/detail/stream_order_state.h"
#include "engine/device/registry.h"

namespace mx::detail {

StreamOrder::Issue::Issue() = default;
StreamOrder::Issue::~Issue() = default;

void StreamOrder::throw_if_lost(Context context) {
  assert_no_engine_lock();
  const Device& device = get_device(context);
  const std::exception_ptr error = device.lost();
  if (error == nullptr) [[likely]]
    return;
  try {
    std::rethrow_exception(error);
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    throw DeviceError(concat("[", device.context(),
                             "] expected a working device, got a lost one: ", current_exception_text()));
  }
}

// --- The parts of the state.

void StreamState::reserve_next() {
  if (load() + 1 < ring.size()) return;
  std::vector<StreamRecord*> larger(std::max<size_t>(16, 2 * ring.size()));
  for (uint64_t clock = retired + 1; clock <= tail; ++clock) larger[clock & (larger.size() - 1)] = at(clock);
  ring.swap(larger);
}

Event* DeviceState::take_event(std::unique_ptr<Event>& fresh) {
  if (!free_events.empty()) {
    Event* event = free_events.back();
    free_events.pop_back();
    return event;
  }
  if (free_events.capacity() <= events.size()) free_events.reserve(2 * events.size() + 16);
  return events.emplace_back(std::move(fresh)).get();
}

StreamOrder::State::~State() {
  streams.clear();  // drains them before the events that they record are destroyed
  for (const auto& device : devices)
    if (device->loss != nullptr) device->loss->release();
  for (StreamRecord& record : records.all()) {
    if (record.failure != nullptr) record.failure->release();
    if (record.end_failure != nullptr) record.end_failure->release();
  }
}

DeviceState* StreamOrder::State::find_device(Context context) {
  for (const auto& device : devices) {
    if (device->context == context) return device.get();
  }
  return nullptr;
}

StreamState* StreamOrder::State::add_stream(DeviceState& device, StreamKind lane,
                                            std::unique_ptr<Stream> made) {
  auto stream = std::make_unique<StreamState>();
  stream->device = &device;
  stream->lane = lane;
  stream->id = static_cast<StreamId>(streams.size());
  stream->stream = std::move(made);
  stream->clocks = no_clocks;
  auto& siblings = device.lanes[static_cast<size_t>(lane)].streams;
  siblings.reserve(siblings.size() + 1);
  active.reserve(streams.size() + 1);
  StreamState* added = streams.emplace_back(std::move(stream)).get();
  ++no_clocks->refs;
  siblings.push_back(added);
  return added;
}

StreamMarks* StreamOrder::State::marks_of(VarBlock* var) {
  if (var->marks != nullptr) return var->marks;
  StreamMarks* made = marks.take();
  made->write = {};
  made->reads.clear();
  made->var = var;
  made->refs = 0;
  made->landed = var->writes_done;
  made->watched = false;
  var->marks = made;
  return made;
}

void StreamOrder::State::unref(StreamMarks* used) {
  if (--used->refs != 0) return;
  if (used->var != nullptr) used->var->marks = nullptr;
  marks.give(used);
}

void StreamOrder::State::unref(StreamRecord* record) {
  if (--record->refs != 0) return;
  if (record->event != nullptr) record->stream->device->give_event(record->event);
  if (record->failure != nullptr) record->failure->release_later();
  if (record->end_failure != nullptr) record->end_failure->release_later();
  record->end_failure = nullptr;
  record->event = nullptr;
  record->failure = nullptr;
  records.give(record);
}

void StreamOrder::State::unref(ClockVector* clocks) {
  if (--clocks->refs == 0) clock_vectors.give(clocks);
}

ClockVector* StreamOrder::State::new_clocks(const ClockVector& from) {
  ClockVector* clocks = clock_vectors.take();
  clocks->refs = 1;
  try {
    clocks->after = from.after;
  } catch (...) {
    unref(clocks);
    throw;
  }
  return clocks;
}

// All nodes of a replay that write a variable make the same version of it, the replay's. So if an earlier
// node of this replay wrote the variable and has not retired, its write is not what the variable will hold.
void StreamOrder::State::supersede(StreamMarks* var_marks, const StreamRecord* record) {
  StreamRecord* before = live(var_marks->write);
  if (before == nullptr || before->replay != record->replay) return;
  for (Touch& touch : before->touches) touch.superseded |= touch.marks == var_marks;
}

void StreamOrder::State::mark(Op* op, StreamRecord* record) {
  const StreamPoint point{record->stream->id, record->clock};
  for_each_link(op, [&](Link& link) {
    StreamMarks* var_marks = link.var()->marks;
    ++var_marks->refs;
    record->touches.push_back({var_marks, 0, link.exclusive(), false});
    if (link.exclusive()) {
      if (record->replay.op != nullptr) supersede(var_marks, record);
      var_marks->write = point;
      var_marks->reads.clear();
      return;
    }
    const auto same = std::find_if(var_marks->reads.begin(), var_marks->reads.end(),
                                   [&](const StreamPoint& read) { return read.stream == point.stream; });
    if (same != var_marks->reads.end()) {
      same->clock = point.clock;
    } else {
      var_marks->reads.push_back(point);
    }
  });
}

// --- StreamOrder.

StreamOrder::StreamOrder(Listener& listener, int compute_streams)
    : state_(std::make_unique<State>(compute_streams)), listener_(listener) {}

StreamOrder::~StreamOrder() = default;

void StreamOrder::plan(Op* op, Context context, StreamKind lane, Issue& issue) {
  throw_if_lost(context);
  for (;;) {
    const Missing missing = try_plan(op, context, lane, issue);
    if (missing == Missing::nothing) return;
    supply(missing, context, lane, issue);
  }
}

void StreamOrder::supply(Missing missing, Context context, StreamKind lane, Issue& issue) {
  assert_no_engine_lock();
  Device& device = get_device(context);
  if (missing == Missing::stream) issue.new_stream = device.new_stream(lane);
  if (missing == Missing::event) issue.new_event = device.new_event();
  if (missing != Missing::device) return;
  auto made = std::make_unique<DeviceState>();
  made->context = context;
  made->device = &device;
  const int limit = state_->compute_streams;
  const int streams = limit > 0 ? limit : device.properties().compute_streams;
  // Operations for communication wait for what they send. On one stream, each would also wait for what those
  // before it send, which may be computed much later.
  for (const StreamKind kind : {StreamKind::compute, StreamKind::comm})
    made->lanes[static_cast<size_t>(kind)].limit = static_cast<size_t>(std::max(1, streams));
  issue.device = std::move(made);
}

StreamOrder::Missing StreamOrder::try_plan(Op* op, Context context, StreamKind lane, Issue& issue) {
  State& state = *state_;
  // Everything that can fail comes first, so that a failure changes nothing.
  DeviceState* const known = state.find_device(context);
  if (known == nullptr && issue.device == nullptr) return Missing::device;
  DeviceState& device = known != nullptr ? *known : *state.devices.emplace_back(std::move(issue.device));
  state.gather(op);
  StreamState* chosen = state.choose(device, lane);
  if (chosen == nullptr && issue.new_stream == nullptr) return Missing::stream;
  if (device.free_events.empty() && issue.new_event == nullptr) return Missing::event;
  if (chosen == nullptr) chosen = state.add_stream(device, lane, std::move(issue.new_stream));
  StreamState& stream = *chosen;
  stream.reserve_next();
  size_t links = 0;
  Failure* inherited = nullptr;
  for_each_link(op, [&](Link& link) {
    VarBlock* var = link.var();
    StreamMarks* var_marks = state.marks_of(var);
    if (!link.exclusive() && var_marks->reads.size() == var_marks->reads.capacity()) {
      var_marks->reads.reserve(2 * var_marks->reads.size() + 2);
    }
    if (inherited == nullptr && link.inherits()) inherited = var->failure;
    ++links;
  });
  issue.waits.clear();
  issue.waits.reserve(state.front.size());
  StreamRecord* record = state.records.take();
  Event* event = nullptr;
  ClockVector* clocks = nullptr;
  try {
    record->dependences.clear();
    record->dependences.reserve(state.gathered.size() + state.front.size());
    record->touches.clear();
    record->touches.reserve(links);
    event = device.take_event(issue.new_event);
    clocks = state.clocks_after_waits(stream);
  } catch (...) {
    if (event != nullptr) device.give_event(event);
    state.records.give(record);
    throw;
  }

  record->stream = &stream;
  record->clock = ++stream.tail;
  record->sequence = ++state.sequence;
  record->step = stream.step = std::max(state.first_step(stream), state.ready_step()) + 1;
  record->refs = 1;
  record->is_issued = record->is_retired = record->is_broken = false;
  record->epoch = op->epoch;
  record->replay = op->flags & kOpNode ? node_of(op).group->replay_ref() : ReplayRef{};
  const OpCold& cold = op->cold();
  record->bytes = bytes_of(op);
  record->name = cold.name;
  record->where = cold.where;
  record->event = event;
  record->failure = inherited;
  record->inherited = inherited != nullptr;
  if (inherited != nullptr) inherited->retain();
  stream.ring[record->clock & (stream.ring.size() - 1)] = record;
  if (!stream.is_active) {
    stream.is_active = true;
    state.active.push_back(&stream);
  }
  ++outstanding_;

  for (const Dependence& dependence : state.gathered) {
    if (dependence.data) record->dependences.push_back(dependence);
  }
  for (const Dependence& dependence : state.front) {
    if (State::covers(stream, *dependence.record)) continue;
    issue.waits.push_back(dependence.record->event);
    record->dependences.push_back({dependence.record, false});
  }
  for (const Dependence& dependence : record->dependences) ++dependence.record->refs;
  wait_count_ += issue.waits.size();
  record->clocks = clocks;
  ++clocks->refs;
  state.unref(stream.clocks);
  stream.clocks = clocks;

  state.mark(op, record);
  if (op->type->async) early_failure(op) = nullptr;

  issue.stream = stream.stream.get();
  issue.id = stream.id;
  issue.clock = record->clock;
  issue.event = event;
  issue.record = record;
  return Missing::nothing;
}

void StreamOrder::begin(Issue& issue) {
  assert_no_engine_lock();
  try {
    for (const Event* event : issue.waits) issue.stream->wait(*event);
  } catch (...) {
    issue.begin_error = std::current_exception();
    issue.begin_failure = failure_of(issue.begin_error, issue.record->name, issue.record->where);
  }
}

void StreamOrder::end(Issue& issue) {
  assert_no_engine_lock();
  try {
    issue.stream->record(*issue.event);
  } catch (...) {
    issue.end_failure = failure_of(std::current_exception(), issue.record->name, issue.record->where);
  }
}

void StreamOrder::issued(Op* op, Issue& issue, Failure* failure) {
  State& state = *state_;
  StreamRecord* record = issue.record;
  StreamState& stream = *record->stream;
  if (failure != nullptr) {
    failure->retain();
    if (record->failure != nullptr) record->failure->release_later();
    record->failure = failure;
    record->inherited = false;
  } else if (issue.begin_failure != nullptr && record->failure == nullptr) {
    record->failure = std::exchange(issue.begin_failure, nullptr);
  }
  if (issue.begin_error != nullptr) [[unlikely]] {
    // The stream could not wait, so it is ordered after no more points than before. The points that it should
    // have waited for are in the record's dependences. gather() looks there for operations that depend on
    // this one.
    record->is_broken = true;
    const StreamRecord* before = state.live({stream.id, record->clock - 1});
    state.unref(record->clocks);
    state.unref(stream.clocks);
    record->clocks = before != nullptr ? before->clocks : state.no_clocks;
    stream.clocks = record->clocks;
    stream.clocks->refs += 2;
  }
  if (issue.begin_failure != nullptr) std::exchange(issue.begin_failure, nullptr)->release_later();
  if (issue.end_failure != nullptr) [[unlikely]] {
    record->is_broken = true;
    record->end_failure = std::exchange(issue.end_failure, nullptr);
    stream.device->give_event(record->event);
    record->event = nullptr;
  }
  for (Touch& touch : record->touches) {
    if (touch.exclusive) touch.version = touch.marks->var->writes_done + 1;
  }
  record->op = op->type->async && record->replay.op == nullptr ? op : nullptr;
  record->issued_ns = issue.issued_ns;
  record->ended_ns = 0;
  record->is_issued = true;
  ++issued_count_;
  issue.waits.clear();
  issue.stream = nullptr;
  issue.event = nullptr;
  issue.record = nullptr;
}

void StreamOrder::forget(VarBlock* var) {
  StreamMarks* gone = var->marks;
  if (gone == nullptr) return;
  var->marks = nullptr;
  gone->var = nullptr;
  gone->watched = false;
  if (gone->refs == 0) state_->marks.give(gone);
}

}  // namespace mx::detail
