// StreamOrder: orders operations on streams of accelerators without ever blocking the host. Internal.
//
// An operation of an accelerator releases its dependants when it has been *enqueued*. What still happens on
// the device is remembered per variable as points in streams: the point of its last write, and the points of
// the reads since. When the next operation that touches the variable is planned, each point it depends on is
//   - nothing to do, if the point is on the same stream, has ended, or the stream is already ordered after it
//     (known from vector clocks, also through third streams), or
//   - one event wait.
// An operation of the CPU starts only when the points it depends on have ended; who polls, see poll().
//
// Errors: a failure on the device is found when the operation retires. Then exactly the versions that were
// made from it are poisoned: data dependences (reads and updates) pass a failure on, order-only ones (a
// write after anything) do not. The cause of an operation's failure is, first of these that there is: what
// its function threw, the root cause of a version it read or updated (what it does on undefined data is no
// error of its own), its own error on the device.
//
// All members are called under the engine's lock, except begin() and end(). Sources: vector clocks after
// Fidge and Mattern; event waits inferred from per-datum last writer and readers as in CUDASTF.
// Parts: stream_order.cc (plan to issued), stream_order_choice.cc (which stream, which waits),
// stream_order_retire.cc (poll and what it finds), stream_order_state.h (their data).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
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

/// What streams still do with a variable. Lives from the first operation planned on it until no operation in
/// flight touches it; then the variable has none.
struct StreamMarks {
  StreamPoint write;               // clock 0: nothing
  std::vector<StreamPoint> reads;  // since that write, at most one per stream
  VarBlock* var = nullptr;         // null: the variable is gone
  uint32_t refs = 0;               // operations in flight that touch the variable
  uint32_t landed = 0;             // the newest version known to be in memory
  bool watched = false;            // landed() has said no
};

class StreamOrder {
 public:
  /// What poll() finds. Called under the engine's lock; must not call back into StreamOrder::poll().
  class Listener {
   public:
    virtual ~Listener() = default;
    /// A CPU operation that host_may_start() refused may start now. Poisoned inputs have set kOpSkip.
    virtual void host_may_start(Op* op) = 0;
    /// An issued operation has ended on its device (failure: its own or inherited; null if it went well).
    /// `inherited`: it did not fail itself. A failure that was given to issued() comes here again, with
    /// inherited false. The versions it made have been poisoned before this call.
    virtual void retired(uint16_t epoch, uint64_t bytes, Failure* failure, bool inherited) = 0;
    /// A write to this variable, for which landed() has said no, has ended at that point (failure: as for
    /// retired(); it is what the version made there came to, even if others have replaced it). What landed()
    /// refused may have ended with it: ask again.
    virtual void maybe_landed(VarBlock* var, StreamPoint point, Failure* failure) = 0;
    /// A node of a replay that has not ended has failed on its device (segment_group.h): the replay fails
    /// with it. retired() follows.
    virtual void node_failed(Op* /*replay*/, Failure* /*failure*/, bool /*inherited*/) {}
  };

  /// One operation between plan() and issued(). Reusable; after issued() it holds nothing.
  struct Issue {
    Stream* stream = nullptr;
    StreamId id = 0;
    uint64_t clock = 0;
    std::vector<const Event*> waits;   // to wait for, in this order
    Event* event = nullptr;            // recorded by end()
    std::exception_ptr begin_error;    // from the device
    Failure* begin_failure = nullptr;  // what begin_error and
    Failure* end_failure = nullptr;    // an error of end() make of the operation
    StreamRecord* record = nullptr;
    // Objects that were requested from the device before the lock was taken: see Missing.
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

  /// Chooses a stream of the device's lane, gives the operation the next point on it, decides its event
  /// waits and marks its variables. Throws DeviceError when the device or its streams cannot be had; then
  /// nothing has changed. The caller skips an operation with a poisoned input beforehand; one that is planned
  /// all the same inherits the cause.
  void plan(Op* op, Context context, StreamKind lane, Issue& issue);
  /// The parts of plan(), for a caller that must not ask a device under the lock. supply() and
  /// throw_if_lost() are called without it, and throw what the device throws.
  ///   throw_if_lost(context); while ((missing = try_plan(...)) != Missing::nothing) supply(missing, ...);
  Missing try_plan(Op* op, Context context, StreamKind lane, Issue& issue);
  void supply(Missing missing, Context context, StreamKind lane, Issue& issue);
  static void throw_if_lost(Context context);

  /// Enqueues the waits. No lock; calls on one stream must not overlap.
  static void begin(Issue& issue);
  /// Records the operation's event. No lock. To be called also after a begin_error.
  static void end(Issue& issue);

  /// The operation is on its stream. `failure`: its function threw on the host (then its versions are
  /// poisoned by the engine now, and the work it had enqueued is waited for all the same). To be called just
  /// before DependencyState::complete(), in one hold of the lock; an asynchronous operation is completed
  /// later, see take_early_failure().
  void issued(Op* op, Issue& issue, Failure* failure);

  /// An asynchronous operation (on a stream; or another whose early_failure() is null) whose token has been
  /// used is about to be completed: what its work on the device has failed with meanwhile, to be released by
  /// the caller; else null. With a failure it completes as Outcome::failed (it has been counted by
  /// retired()).
  Failure* take_early_failure(Op* op);

  /// May this CPU operation, granted at all its variables, start? False: it is kept, and the listener gets
  /// it when it may. True or then, poisoned inputs have set kOpSkip.
  bool host_may_start(Op* op);

  /// Calls f(Op*) for every operation of the CPU that host_may_start() has refused and not yet released; for
  /// some more than once.
  template <class F>
  void for_each_parked(F&& f) {
    for_each_parked([](Op* op, void* g) { (*static_cast<std::remove_reference_t<F>*>(g))(op); },
                    const_cast<void*>(static_cast<const void*>(&f)));
  }

  /// Has the last write of the variable landed? False: maybe_landed() will tell when to ask again.
  bool landed(VarBlock* var) { return landed(var, var->writes_done); }
  /// The same for the write that made `version` (a value that writes_done has had), or a later one: a waiter
  /// that asks for its own version is not delayed by writes that keep coming.
  bool landed(VarBlock* var, uint32_t version);

  /// Retires what has ended. Queries at most one event per stream beyond those that have. Returns true while
  /// anything is outstanding.
  bool poll();
  /// The parts of poll(), for a caller that must not ask a device under the lock:
  ///   if (begin_poll()) { do { unlock; query(); lock; } while (continue_poll()); }
  /// One thread polls at a time: begin_poll() is false if there is nothing to ask, or another thread polls.
  bool begin_poll();
  void query();          // without the lock
  bool continue_poll();  // retires what has ended; false: the poll is over
  bool outstanding() const { return outstanding_ != 0; }

  /// The variable is gone: forgets its marks.
  void forget(VarBlock* var);

  uint64_t issued_count() const { return issued_count_; }
  uint64_t wait_count() const { return wait_count_; }

 private:
  struct State;
  struct Query;
  void retire(StreamRecord* record, Failure* own_failure);
  void gather_queries();
  void retry_postponed();
  void for_each_parked(void (*f)(Op*, void*), void* argument);

  std::unique_ptr<State> state_;
  Listener& listener_;
  uint64_t outstanding_ = 0;
  uint64_t issued_count_ = 0;
  uint64_t wait_count_ = 0;
};

}  // namespace mx::detail
