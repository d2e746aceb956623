// StreamOrder: finds the points that an operation depends on, the stream it gets, and the events that this
// stream waits for.
//
// If an operation depends on the tail of a stream, the last operation enqueued there, it continues on that
// stream: it needs no wait for it, and nothing is serialised unnecessarily. In a fork, the first branch
// continues on the producer's stream; then the producer is no longer a tail, and each other branch takes a
// stream of its own with one wait. A join continues on the stream of one branch and waits for the others. In
// general, if there are enough streams, the number of waits is the number of edges after transitive
// reduction, less the edges that the order of a stream implies.
#include <algorithm>
#include <tuple>

#include "engine/detail/stream_order_state.h"

namespace mx::detail {

void StreamOrder::State::gather(Op* op) {
  ++visit;
  gathered.clear();
  for_each_link(op, [&](Link& link) {
    const StreamMarks* var_marks = link.var()->marks;
    if (var_marks == nullptr) return;
    if (StreamRecord* write = live(var_marks->write)) gather(write, link.access() != Access::write);
    if (!link.exclusive()) return;
    for (const StreamPoint& read : var_marks->reads) {
      if (StreamRecord* record = live(read)) gather(record, false);
    }
  });
  reduce();
}

void StreamOrder::State::gather(StreamRecord* record, bool data) {
  if (record->visit == visit) {
    gathered[record->visit_index].data |= data;
    return;
  }
  record->visit = visit;
  record->visit_index = static_cast<uint32_t>(gathered.size());
  gathered.push_back({record, data});
  if (record->is_broken) [[unlikely]] {
    for (const Dependence& dependence : record->dependences) {
      if (!dependence.record->is_retired) gather(dependence.record, false);
    }
    if (record->event != nullptr) return;
    if (StreamRecord* before = live({record->stream->id, record->clock - 1})) gather(before, false);
  }
}

void StreamOrder::State::reduce() {
  front.clear();
  if (latest.size() < streams.size()) latest.resize(streams.size());
  for (const Dependence& dependence : gathered) {
    if (dependence.record->event == nullptr) continue;
    Latest& entry = latest[dependence.record->stream->id];
    if (entry.visit != visit) {
      entry = {visit, front.size()};
      front.push_back(dependence);
      continue;
    }
    Dependence& kept = front[entry.index];
    if (kept.record->clock < dependence.record->clock) kept.record = dependence.record;
    kept.data |= dependence.data;
  }
  if (front.size() < 2) return;
  // "Ordered after" is transitive, so a point that has been dropped is not needed to drop others.
  size_t kept = 0;
  for (size_t i = 0; i < front.size(); ++i) {
    const StreamRecord& record = *front[i].record;
    const auto dominates = [&](const Dependence& other) {
      return other.record->clocks->of(record.stream->id) >= record.clock;
    };
    bool dominated = false;
    for (size_t j = 0; j < front.size() && !dominated; ++j) {
      if (j < kept || j > i) dominated = dominates(front[j]);
    }
    if (!dominated) front[kept++] = front[i];
  }
  front.resize(kept);
}

uint64_t StreamOrder::State::ready_step() const {
  uint64_t step = 0;
  for (const Dependence& dependence : front) step = std::max(step, dependence.record->step);
  return step;
}

size_t StreamOrder::State::waits_on(const StreamState& stream) const {
  size_t waits = 0;
  for (const Dependence& dependence : front) waits += !covers(stream, *dependence.record);
  return waits;
}

StreamState* StreamOrder::State::choose(DeviceState& device, StreamKind lane_kind) {
  DeviceState::Lane& lane = device.lanes[static_cast<size_t>(lane_kind)];
  if (lane.limit == 1 && !lane.streams.empty()) return lane.streams.front();

  // Returns a stream whose tail is one of the candidates, or null. Prefers a tail whose result the operation
  // reads, because that is in the caches of the stream's processors. Among equals, prefers the tail that was
  // planned last, because it probably ends last.
  const auto best_tail = [&](const std::vector<Dependence>& candidates) {
    const Dependence* best = nullptr;
    for (const Dependence& candidate : candidates) {
      const StreamState& stream = *candidate.record->stream;
      if (stream.device != &device || stream.lane != lane_kind) continue;
      if (stream.tail != candidate.record->clock) continue;
      if (best == nullptr || candidate.data > best->data ||
          (candidate.data == best->data && candidate.record->sequence > best->record->sequence)) {
        best = &candidate;
      }
    }
    return best == nullptr ? nullptr : best->record->stream;
  };
  if (StreamState* stream = best_tail(front)) return stream;
  for (StreamState* stream : lane.streams) {
    if (stream->load() == 0) return stream;
  }
  if (lane.streams.size() < lane.limit) return nullptr;
  if (StreamState* stream = best_tail(gathered)) return stream;

  // All streams are busy with other operations. Take the one where the operation can begin first; among
  // equals, the one with the fewest waits, then with the fewest operations in flight. That number does not
  // come first, because it counts an operation that waits for a long time like one that runs.
  const uint64_t ready = ready_step();
  const auto cost = [&](const StreamState& stream) {
    return std::tuple(std::max(ready, first_step(stream)), waits_on(stream), stream.load());
  };
  StreamState* best = nullptr;
  for (size_t i = 0; i < lane.streams.size(); ++i) {
    StreamState* stream = lane.streams[(lane.turn + i) % lane.streams.size()];
    if (best == nullptr || cost(*stream) < cost(*best)) best = stream;
  }
  lane.turn = (lane.turn + 1) % lane.streams.size();
  return best;
}

ClockVector* StreamOrder::State::clocks_after_waits(StreamState& stream) {
  ClockVector* clocks = nullptr;
  for (const Dependence& dependence : front) {
    const StreamRecord& record = *dependence.record;
    if (covers(stream, record)) continue;
    if (clocks == nullptr) clocks = new_clocks(*stream.clocks);
    try {
      clocks->raise(record.stream->id, record.clock);
      for (StreamId id = 0; id < record.clocks->after.size(); ++id)
        clocks->raise(id, record.clocks->after[id]);
    } catch (...) {
      unref(clocks);
      throw;
    }
  }
  if (clocks == nullptr) {
    clocks = stream.clocks;
    ++clocks->refs;
  }
  return clocks;
}

}  // namespace mx::detail
