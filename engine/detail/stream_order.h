// StreamOrder: orders operations on streams of accelerators without ever blocking the host. Internal.
//
// An operation of an accelerator releases its dependants when it has been *enqueued*. Its work that is still
// in flight on the device is recorded per variable as points in streams: the point of the variable's last
// write, and the points of the reads since. When the next operation on the variable is planned, each point
// that it depends on costs
//   - nothing, if the point is on the same stream, has ended, or the stream is already ordered after it
//     (known from vector clocks, also through third streams), or
//   - one event wait.
// An operation of the CPU starts only when the points that it depends on have ended, which poll() finds out.
//
// Errors: a failure on the device is found when the operation retires. Then exactly the versions that were
// made from its results are poisoned: data dependences (reads and updates) pass a failure on, order-only
// dependences (a write after any access) do not. The cause of an operation's failure is the first of these
// that exists: what its function threw; the root cause of a version that it read or updated, since an error
// on undefined data is not its own; its own error on the device. When a device is lost, every operation in
// flight on it reports that. A device cannot say which kernel has done it, so one operation is blamed: of
// those that may have been running, the one that was pushed first. The others inherit its failure.
//
// All members are called under the engine's lock unless they say otherwise. Sources: vector clocks after
// Fidge and Mattern; event waits inferred from per-datum last writer and readers as in CUDASTF.
// Parts: stream_order.cc (plan to issued), stream_order_choice.cc (which stream, which waits),
// stream_order_retire.cc (poll and what it finds), stream_order_state.h (their data).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/detail/failure.h"
#include "engine/detail/op.h"
#include "engine/device/device.h"

namespace mx::detail {

using StreamId = uint32_t;
struct DeviceState;
struct StreamRecord;

/// A point in the order of a stream: everything up to its clock-th operation. Clock 0 is before the first.
struct StreamPoint {
  StreamId stream = 0;
  uint64_t clock = 0;
  bool operator==(const StreamPoint&) const = default;
};

/// A variable's accesses that are in flight on streams. Exists from the first operation planned on the
/// variable until no operation in flight uses the variable.
struct StreamMarks {
  StreamPoint write;               // the last write; clock 0: none
  std::vector<StreamPoint> reads;  // the reads since that write, at most one per stream
  VarBlock* var = nullptr;         // null: the variable has been deleted
  uint32_t refs = 0;               // operations in flight that use the variable
  uint32_t landed = 0;             // the newest version known to be in memory
  bool watched = false;            // landed() has returned false since the last maybe_landed()
};

class StreamOrder {
 public:
  /// Receives the results of poll(). Called under the engine's lock; must not call StreamOrder::poll().
  class Listener {
   public:
    virtual ~Listener() = default;
    /// A CPU operation for which StreamOrder::host_may_start() has returned false may start now. kOpSkip is
    /// set if an input is poisoned.
    virtual void host_may_start(Op* op) = 0;
    /// An issued operation has ended on its device. `failure` is its own or an inherited one, or null if it
    /// succeeded. `inherited` is true if it did not fail itself. A failure that was given to issued() is
    /// passed here again, with `inherited` false. The versions that it made are already poisoned.
    virtual void retired(uint16_t epoch, uint64_t bytes, Failure* failure, bool inherited) = 0;
    /// A write to this variable, for which landed() has returned false, has ended at that point. `failure` is
    /// as for retired(), and is that of the version made there, even if later writes have replaced the
    /// version. The listener must call landed() again, because what it waits for may have landed.
    virtual void maybe_landed(VarBlock* var, StreamPoint point, Failure* failure) = 0;
    /// An operation that was issued with Issue::issued_ns is about to retire. It was found to have ended now;
    /// it began when it had been issued and the operations before it had ended, or later.
    virtual void ended_on_device(const char* /*name*/, Context, StreamId, int64_t /*begin_ns*/,
                                 int64_t /*end_ns*/) {}
    /// A node of a replay that has not ended has failed on its device (segment_group.h): the replay fails
    /// with this failure. retired() follows.
    virtual void node_failed(Op* /*replay*/, Failure* /*failure*/, bool /*inherited*/) {}
  };

  /// One operation between plan() and issued(). Reusable: after issued() it owns nothing.
  struct Issue {
    Stream* stream = nullptr;
    StreamId id = 0;
    uint64_t clock = 0;
    std::vector<const Event*> waits;   // the events to wait for, in this order
    Event* event = nullptr;            // recorded by end()
    int64_t issued_ns = 0;             // set by the caller if the end is to be told; see ended_on_device()
    std::exception_ptr begin_error;    // thrown by the device in begin()
    Failure* begin_failure = nullptr;  // the operation's failure because of begin_error
    Failure* end_failure = nullptr;    // the operation's failure because of an error in end()
    StreamRecord* record = nullptr;
    // Objects that supply() has made without the lock: see Missing.
    std::unique_ptr<DeviceState> device;
    std::unique_ptr<Stream> new_stream;
    std::unique_ptr<Event> new_event;

    Issue();
    Issue(const Issue&) = delete;
    ~Issue();
  };

  /// The object that try_plan() lacks and that only the device can make.
  enum class Missing : uint8_t { nothing, device, stream, event };

  StreamOrder(Listener& listener, int compute_streams);  // 0: DeviceProperties::compute_streams
  ~StreamOrder();
  StreamOrder(const StreamOrder&) = delete;

  /// Chooses a stream of the device's lane, gives the operation the next point on it, decides its event waits
  /// and records the point at its variables. Throws DeviceError if the device is lost or cannot make a stream
  /// or event; then nothing has changed. The caller should have skipped an operation with a poisoned input;
  /// if such an operation is planned, it inherits the cause.
  void plan(Op* op, Context context, StreamKind lane, Issue& issue);
  /// The parts of plan(), for a caller that must not call a device under the lock. supply() and
  /// throw_if_lost() are called without the lock, and throw what the device throws.
  ///   throw_if_lost(context); while ((missing = try_plan(...)) != Missing::nothing) supply(missing, ...);
  Missing try_plan(Op* op, Context context, StreamKind lane, Issue& issue);
  void supply(Missing missing, Context context, StreamKind lane, Issue& issue);
  static void throw_if_lost(Context context);

  /// Enqueues the waits. No lock; calls on one stream must not overlap.
  static void begin(Issue& issue);
  /// Records the operation's event. No lock. Must be called also after a begin_error.
  static void end(Issue& issue);

  /// Called when the operation has been enqueued. `failure` is what its function threw on the host, or null;
  /// with a failure the engine poisons the operation's versions now, but the work that it has enqueued is
  /// still waited for. Must be called right before DependencyState::complete(), without releasing the lock in
  /// between. An asynchronous operation is completed later; see take_early_failure().
  void issued(Op* op, Issue& issue, Failure* failure);

  /// Returns the failure of the device's work of an asynchronous operation, if that ended before the
  /// operation's token was used, or null. The caller owns the reference. Called when the token has been used,
  /// before the operation is completed; with a failure it is completed as Outcome::failed, and retired() has
  /// counted it. For an asynchronous operation of the CPU, early_failure() must be null.
  Failure* take_early_failure(Op* op);

  /// Returns true if this CPU operation, all of whose links are granted, may start. If not, it is kept until
  /// it may, and then given to the listener. When it may start, kOpSkip is set if an input is poisoned.
  bool host_may_start(Op* op);

  /// Calls f(Op*) for every CPU operation that host_may_start() has kept and not yet given to the listener;
  /// for some of them more than once.
  template <class F>
  void for_each_parked(F&& f) {
    for_each_parked([](Op* op, void* g) { (*static_cast<std::remove_reference_t<F>*>(g))(op); },
                    const_cast<void*>(static_cast<const void*>(&f)));
  }

  /// Returns true if the last write of the variable has landed in memory. If false, Listener::maybe_landed()
  /// is called when the caller should ask again.
  bool landed(VarBlock* var) { return landed(var, var->writes_done); }
  /// The same for the write that made `version` (a value that writes_done has had), or a later one. A waiter
  /// that asks for its own version is not delayed by a steady flow of later writes.
  bool landed(VarBlock* var, uint32_t version);

  /// Retires the operations that have ended. On each stream it queries their events, and at most one that has
  /// not ended. Returns true while any operation is outstanding.
  bool poll();
  /// The parts of poll(), for a caller that must not call a device under the lock:
  ///   if (begin_poll()) { do { unlock; query(); lock; } while (continue_poll()); }
  /// One thread polls at a time: begin_poll() returns false if there is no query or another thread polls.
  bool begin_poll();
  void query();          // without the lock
  bool continue_poll();  // retires what has ended; returns false if the poll is over
  bool outstanding() const { return outstanding_ != 0; }

  /// Drops the marks of a variable that is being deleted.
  void forget(VarBlock* var);

  uint64_t issued_count() const { return issued_count_; }
  uint64_t wait_count() const { return wait_count_; }

 private:
  struct State;
  struct Query;
  void retire(StreamRecord* record, Failure* own_failure);
  void gather_queries();
  bool blame_for_loss();
  static void query_stream(std::span<Query> queries);
  void retry_postponed();
  void for_each_parked(void (*f)(Op*, void*), void* argument);

  std::unique_ptr<State> state_;
  Listener& listener_;
  uint64_t outstanding_ = 0;
  uint64_t issued_count_ = 0;
  uint64_t wait_count_ = 0;
};

}  // namespace mx::detail
