// The data of StreamOrder: streams, the operations in flight on them, and their vector clocks. Internal.
//
// Everything here is pooled, so that in steady state an operation allocates nothing: records, clock vectors,
// marks and host waits keep the capacity of their vectors, and events are recycled per device.
//
// Lifetime of a record: planned -> issued -> retired -> freed. It is freed when no operation in flight
// depends on it. Until then its failure can be read, and its event is not recorded again.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "engine/detail/stream_order.h"

namespace mx::detail {

/// The failure of an asynchronous operation that failed on its device before its token was used, else null. A
/// running operation is in no queue, so the fields of its links are free; next() has the token's failure.
inline Failure*& early_failure(Op* op) { return op->link_a[1].token_failure; }

/// A pool of objects. take() returns an object in the state in which give() got it.
template <class T>
class Recycler {
 public:
  T* take() {
    if (free_.empty()) {
      if (free_.capacity() <= all_.size()) free_.reserve(2 * all_.size() + 8);  // so that give() cannot fail
      return &all_.emplace_back();
    }
    T* object = free_.back();
    free_.pop_back();
    return object;
  }
  void give(T* object) noexcept { free_.push_back(object); }
  std::deque<T>& all() { return all_; }
  size_t taken() const { return all_.size() - free_.size(); }

 private:
  std::deque<T> all_;
  std::vector<T*> free_;
};

/// The vector clock of a point: the point is ordered after clock after[s] of each stream s, and after all
/// earlier points of its own stream. Consecutive operations of a stream share it if they have not waited for
/// anything. It is immutable while it is shared.
struct ClockVector {
  uint32_t refs = 0;
  std::vector<uint64_t> after;

  uint64_t of(StreamId stream) const { return stream < after.size() ? after[stream] : 0; }
  void raise(StreamId stream, uint64_t clock) {
    if (after.size() <= stream) after.resize(stream + 1);
    if (after[stream] < clock) after[stream] = clock;
  }
};

struct StreamState;
struct DeviceState;

/// One point that an operation depends on. `data` is true if the operation uses what was made there, so that
/// it inherits the failure.
struct Dependence {
  StreamRecord* record;
  bool data;
};

/// One variable of an operation in flight.
struct Touch {
  StreamMarks* marks;
  uint32_t version;  // the version that the operation makes; written variables only
  bool exclusive;
  bool superseded;  // a later node of the same replay makes the version
};

/// The replay that a node belongs to. For the variables a replay is one operation, so all its nodes that
/// write a variable make the same version of it.
struct ReplayRef {
  Op* op = nullptr;  // valid only while the replay is ongoing
  const VarBlock* own = nullptr;
  uint32_t own_version = 0;  // the version of the segment's own variable that the replay makes

  bool ongoing() const { return op != nullptr && static_cast<int32_t>(own->writes_done - own_version) < 0; }
  friend bool operator==(const ReplayRef&, const ReplayRef&) = default;
};

/// A CPU operation that waits for points to retire.
struct HostWait {
  Op* op = nullptr;
  uint32_t remaining = 0;
};

/// One operation of a stream.
struct StreamRecord {
  StreamState* stream = nullptr;
  uint64_t clock = 0;
  uint64_t sequence = 0;  // over all streams, in the order of plan()
  uint64_t step = 0;      // when it ends, if every operation takes one step and nothing else delays it
  uint64_t visit = 0;     // the number of the latest gather() that found it
  uint32_t visit_index = 0;
  uint32_t refs = 0;  // one while in flight, one per record that depends on it
  Op* op = nullptr;   // asynchronous operations only: valid until the token is used
  bool is_issued = false;
  bool is_retired = false;
  bool is_broken = false;  // begin() or end() failed: waiting for it does not wait for what it depends on,
                           // so its dependants depend on that as well
  bool inherited = false;
  uint16_t epoch = 0;
  ReplayRef replay;  // nodes only
  uint64_t bytes = 0;
  int64_t issued_ns = 0;  // 0: nobody wants to know when it has ended
  int64_t ended_ns = 0;   // when it was found to have ended; 0 unless issued_ns is set
  const char* name = nullptr;
  std::source_location where;
  ClockVector* clocks = nullptr;
  Event* event = nullptr;          // null if end() could not record it
  Failure* end_failure = nullptr;  // the error of end()
  Failure* failure = nullptr;
  std::vector<Dependence> dependences;  // data dependences, and those that it waits for
  std::vector<Touch> touches;
  std::vector<HostWait*> host_waits;
};

/// One stream: its records by clock, in a ring that `clock & mask` indexes.
struct StreamState {
  DeviceState* device = nullptr;
  StreamKind lane = StreamKind::compute;
  StreamId id = 0;
  std::unique_ptr<Stream> stream;
  uint64_t tail = 0;     // the clock of the latest operation
  uint64_t retired = 0;  // all operations up to this clock have retired
  uint64_t step = 0;     // StreamRecord::step of the latest operation
  int64_t ended_ns = 0;  // when the latest traced operation was found to have ended
  ClockVector* clocks = nullptr;
  uint64_t pending_poll = 0;  // the number of the latest poll that found its first operation pending
  bool is_active = false;     // listed in State::active
  std::vector<StreamRecord*> ring;

  uint64_t load() const { return tail - retired; }
  StreamRecord* at(uint64_t clock) const { return ring[clock & (ring.size() - 1)]; }
  /// Makes room for the next clock.
  void reserve_next();
};

struct DeviceState {
  static constexpr size_t kLanes = 4;
  struct Lane {
    std::vector<StreamState*> streams;
    size_t limit = 1;
    size_t turn = 0;  // where the round robin begins
  };

  Context context;
  Device* device = nullptr;
  Lane lanes[kLanes];
  std::vector<std::unique_ptr<Event>> events;
  std::vector<Event*> free_events;
  bool seen_lost = false;   // a poll has found the device lost
  Failure* loss = nullptr;  // of the operation that is blamed for the loss; owned

  /// Returns a free event, or `fresh` if none is free. Precondition: one is free, or `fresh` is not null.
  Event* take_event(std::unique_ptr<Event>& fresh);
  void give_event(Event* event) noexcept { free_events.push_back(event); }
};

/// A poll's query of one operation's event, and the answer.
struct StreamOrder::Query {
  StreamRecord* record = nullptr;
  EventStatus status = EventStatus::pending;
  Failure* failure = nullptr;  // if status == failed; owned
  bool lost = false;           // it has failed because its device is lost
};

struct StreamOrder::State {
  explicit State(int limit) : compute_streams(limit), no_clocks(clock_vectors.take()) { no_clocks->refs = 1; }
  ~State();

  // --- stream_order.cc
  DeviceState* find_device(Context context);
  StreamState* add_stream(DeviceState& device, StreamKind lane, std::unique_ptr<Stream> made);
  /// Returns the record at a point, or null if it has retired or there is none.
  StreamRecord* live(StreamPoint point) const {
    if (point.clock == 0) return nullptr;
    const StreamState& stream = *streams[point.stream];
    return point.clock > stream.retired ? stream.at(point.clock) : nullptr;
  }
  /// Returns the variable's marks, and makes them if it has none.
  StreamMarks* marks_of(VarBlock* var);
  void unref(StreamMarks* marks);
  void unref(StreamRecord* record);
  void unref(ClockVector* clocks);
  /// Returns a copy with one reference.
  ClockVector* new_clocks(const ClockVector& from);
  /// Returns the clocks of the stream after it has waited for the points in `front`.
  ClockVector* clocks_after_waits(StreamState& stream);
  void mark(Op* op, StreamRecord* record);
  void supersede(StreamMarks* var_marks, const StreamRecord* record);

  // --- stream_order_choice.cc
  /// Fills `gathered` with the live points that the operation depends on, and `front` with those that no
  /// other of them is ordered after. So waiting for the points in `front` is waiting for all.
  void gather(Op* op);
  void gather(StreamRecord* record, bool data);
  void reduce();
  /// Returns the stream for the operation, or null if it needs a new one, which the caller must make.
  StreamState* choose(DeviceState& device, StreamKind lane);
  static bool covers(const StreamState& stream, const StreamRecord& record) {
    return record.stream == &stream || stream.clocks->of(record.stream->id) >= record.clock;
  }
  size_t waits_on(const StreamState& stream) const;
  /// ready_step() is the step in which the last operation in `front` ends; first_step() is the step after
  /// which the stream is free.
  uint64_t ready_step() const;
  uint64_t first_step(const StreamState& stream) const { return stream.load() > 0 ? stream.step : now_step; }

  const int compute_streams;
  std::vector<std::unique_ptr<DeviceState>> devices;
  std::vector<std::unique_ptr<StreamState>> streams;  // by StreamId
  std::vector<StreamState*> active;                   // the streams with operations in flight
  Recycler<StreamRecord> records;
  Recycler<ClockVector> clock_vectors;
  Recycler<StreamMarks> marks;
  Recycler<HostWait> host_waits;
  ClockVector* const no_clocks;  // an empty one, shared
  Op* postponed = nullptr;  // list by next(): CPU operations without memory for a HostWait; polls try again
  uint64_t sequence = 0;
  uint64_t now_step = 0;  // the largest step of an operation that has retired
  uint64_t polls = 0;
  bool polling = false;  // a thread is between begin_poll() and the end of that poll
  size_t poll_turn = 0;  // the stream where the next gather_queries() begins
  static constexpr size_t kQueries = 64;
  Query queries[kQueries];  // used by the thread that polls
  size_t query_count = 0;

  // Scratch data of one plan().
  uint64_t visit = 0;
  std::vector<Dependence> gathered;
  std::vector<Dependence> front;
  struct Latest {
    uint64_t visit = 0;
    size_t index = 0;
  };
  std::vector<Latest> latest;  // by StreamId: the place in `front` of the stream's latest point
};

}  // namespace mx::detail
